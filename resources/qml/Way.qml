import QtQuick
import QtQuick.Templates as T

T.AbstractButton {
    id: way

    property string glyph
    property string title
    property string words
    property bool primary: false

    implicitHeight: column.height + 2 * theme.s16
    hoverEnabled: true
    focusPolicy: Qt.TabFocus
    opacity: enabled ? 1 : theme.off
    Accessible.role: Accessible.Button
    Accessible.name: title
    Accessible.description: words
    Keys.onReturnPressed: click()

    Icon {
        id: icon
        x: theme.s16
        y: theme.s16
        side: theme.mark
        name: way.glyph
        tint: way.primary ? theme.accent : theme.quiet
    }
    Column {
        id: column
        anchors.left: icon.right
        anchors.leftMargin: theme.s16
        anchors.right: parent.right
        anchors.rightMargin: theme.s16
        y: theme.s16
        spacing: theme.s4
        Words {
            width: parent.width
            text: way.title
            font.weight: theme.strong
        }
        Quiet {
            width: parent.width
            text: way.words
            lineHeight: theme.lineReading
        }
    }
    background: Rectangle {
        radius: theme.radiusCard
        color: way.down ? theme.pressed : way.hovered ? theme.hover : theme.raised
        border.width: way.primary ? theme.focusLine : theme.hairline
        border.color: way.primary ? theme.accent : theme.line
        FocusRing {
            shown: way.visualFocus
            radius: theme.radiusCard + theme.focusLine
        }
    }
}
