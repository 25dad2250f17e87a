import QtQuick
import QtQuick.Templates as T

T.TextField {
    id: field

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
    cursorDelegate: Caret { field: field }
    Accessible.role: Accessible.EditableText
    Accessible.name: says

    Icon {
        x: theme.s8
        anchors.verticalCenter: parent.verticalCenter
        visible: field.glyph.length > 0
        side: theme.iconSmall
        name: field.glyph
        tint: theme.quiet
    }
    Quiet {
        x: field.leftPadding
        anchors.verticalCenter: parent.verticalCenter
        visible: field.length === 0 && field.preeditText.length === 0
        text: field.says
    }
    background: Rectangle {
        radius: theme.radius
        color: theme.raised
        border.width: field.activeFocus ? theme.focusLine : theme.hairline
        border.color: field.activeFocus ? theme.focus : theme.line
    }
}
