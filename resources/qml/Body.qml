import QtQuick

// Text of a message, selectable. The rich text is ours; nothing in it is ever followed or loaded.
TextEdit {
    id: body

    property string html
    property string said

    function show() {
        const from = selectionStart, to = selectionEnd;
        text = html;
        if (to > from && to <= length)
            select(from, to);
    }

    onHtmlChanged: show()
    textFormat: TextEdit.RichText
    readOnly: true
    selectByMouse: true
    activeFocusOnPress: true
    cursorDelegate: Item {}
    wrapMode: TextEdit.WrapAtWordBoundaryOrAnywhere
    color: theme.text
    selectionColor: theme.selection
    selectedTextColor: theme.onSelection
    font.family: theme.fontText
    font.pixelSize: theme.fontBody
    font.features: { "calt": 0, "liga": 0 }
    Accessible.role: Accessible.Paragraph
    Accessible.name: said
    Accessible.readOnly: true

    Keys.onPressed: (event) => {
        if (event.matches(StandardKey.Copy)) {
            remuda.copyText(selectedText);
            event.accepted = true;
        }
    }
    onActiveFocusChanged: if (!activeFocus) deselect()

    HoverHandler {
        id: pointer
        cursorShape: body.hoveredLink.length > 0 ? Qt.PointingHandCursor : Qt.IBeamCursor
    }
    Loader {
        active: body.hoveredLink.length > 0
        x: pointer.point.position.x
        y: pointer.point.position.y + theme.s12
        sourceComponent: Tip {
            text: body.hoveredLink
            visible: true
        }
    }
}
