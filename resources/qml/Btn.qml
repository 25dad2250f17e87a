import QtQuick
import QtQuick.Templates as T

// A button with words. `primary` is the one main action of a place.
T.Button {
    id: control

    property string glyph
    property bool primary: false
    property color tint: primary ? theme.onAccent : theme.text

    implicitWidth: contentItem.implicitWidth + leftPadding + rightPadding
    implicitHeight: Math.max(theme.control, contentItem.implicitHeight + topPadding + bottomPadding)
    leftPadding: theme.s12
    rightPadding: theme.s12
    topPadding: theme.s4
    bottomPadding: theme.s4
    opacity: enabled ? 1 : theme.off
    hoverEnabled: true
    focusPolicy: Qt.TabFocus
    Accessible.role: Accessible.Button
    Accessible.name: text
    Keys.onReturnPressed: click()
    Keys.onEnterPressed: click()

    contentItem: Row {
        spacing: theme.s8

        Icon {
            anchors.verticalCenter: parent.verticalCenter
            visible: control.glyph.length > 0
            name: control.glyph
            tint: control.tint
        }
        Words {
            anchors.verticalCenter: parent.verticalCenter
            text: control.text
            color: control.tint
            font.pixelSize: theme.fontQuiet
            font.weight: theme.medium
            wrapMode: Text.NoWrap
        }
    }
    background: Rectangle {
        radius: theme.radius
        color: control.primary ? (control.down ? theme.accentPressed : control.hovered ? theme.accentHover : theme.accent)
                               : control.down ? theme.pressed : control.hovered ? theme.hover : control.flat ? "transparent" : theme.raised
        border.width: control.primary || control.flat ? 0 : theme.hairline
        border.color: theme.line

        FocusRing { shown: control.visualFocus }
    }
}
