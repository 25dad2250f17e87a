import QtQuick

// Other words for a message that waits, in its place.
Rectangle {
    id: field

    property string words
    property string says
    signal typed(string text)
    signal saved
    signal ended

    function take() {
        edit.text = words;
        edit.cursorPosition = edit.length;
        edit.forceActiveFocus(Qt.TabFocusReason);
    }

    implicitHeight: edit.implicitHeight
    radius: theme.radius
    color: theme.raised
    border.width: edit.activeFocus ? theme.focusLine : theme.hairline
    border.color: edit.activeFocus ? theme.focus : theme.line

    TextEdit {
        id: edit
        width: parent.width
        leftPadding: theme.s8
        rightPadding: theme.s8
        topPadding: theme.s4
        bottomPadding: theme.s4
        wrapMode: TextEdit.Wrap
        textFormat: TextEdit.PlainText
        color: theme.text
        selectionColor: theme.selection
        selectedTextColor: theme.onSelection
        font.family: theme.fontText
        font.pixelSize: theme.fontQuiet
        selectByMouse: true
        activeFocusOnTab: true
        cursorDelegate: Caret { field: edit }
        Accessible.role: Accessible.EditableText
        Accessible.name: field.says
        Accessible.description: "Enter keeps the change, Escape leaves it as it was."
        onTextChanged: if (activeFocus) field.typed(text)
        Keys.onEscapePressed: field.ended()
        Keys.onPressed: (event) => {
            if (event.key === Qt.Key_Tab || event.key === Qt.Key_Backtab) {
                edit.nextItemInFocusChain(event.key === Qt.Key_Tab).forceActiveFocus(Qt.TabFocusReason);
                event.accepted = true;
                return;
            }
            // The keys of the list are not those of the text in it.
            const enter = event.key === Qt.Key_Return || event.key === Qt.Key_Enter;
            event.accepted = enter && !(event.modifiers & Qt.ShiftModifier);
            if (!event.accepted)
                return;
            if (edit.preeditText.length > 0 || edit.inputMethodComposing)
                Qt.inputMethod.commit();
            else
                field.saved();
        }
    }
}
