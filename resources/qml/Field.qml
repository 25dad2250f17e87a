import QtQuick
import QtQuick.Templates as T

T.TextField {
    id: input

    property string says
    property string glyph

    implicitHeight: theme.control
    leftPadding: glyph.length > 0 ? theme.s8 + theme.iconSmall + theme.s8 : theme.s8
    rightPadding: theme.s8
    verticalAlignment: TextInput.AlignVCenter
    color: theme.text
    selectionColor: theme.selection
    selectedTextColor: theme.onSelection
    font.family: theme.fontText
    font.pixelSize: theme.fontQuiet
    selectByMouse: true
    activeFocusOnTab: true
    cursorDelegate: Caret { field: input }
    Accessible.role: Accessible.EditableText
    Accessible.name: says

    Icon {
        x: theme.s8
        anchors.verticalCenter: parent.verticalCenter
        visible: input.glyph.length > 0
        side: theme.iconSmall
        name: input.glyph
        tint: theme.quiet
    }
    Quiet {
        x: input.leftPadding
        anchors.verticalCenter: parent.verticalCenter
        visible: input.length === 0 && input.preeditText.length === 0
        text: input.says
    }
    background: Rectangle {
        radius: theme.radius
        color: theme.raised
        border.width: input.activeFocus ? theme.focusLine : theme.hairline
        border.color: input.activeFocus ? theme.focus : theme.line
    }
}
