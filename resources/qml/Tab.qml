import QtQuick
import QtQuick.Templates as T

// One of several pages of a place.
T.AbstractButton {
    id: tab

    property bool current: false
    property real side: theme.s12

    implicitWidth: words.implicitWidth + 2 * side
    implicitHeight: theme.control + theme.s4
    hoverEnabled: true
    focusPolicy: current || activeFocus ? Qt.StrongFocus : Qt.ClickFocus
    Accessible.role: Accessible.PageTab
    Accessible.name: text
    Accessible.selected: current
    Accessible.selectable: true
    Keys.onReturnPressed: click()
    Keys.onEnterPressed: click()

    contentItem: Words {
        id: words
        text: tab.text
        color: tab.current ? theme.text : tab.hovered ? theme.text : theme.quiet
        font.pixelSize: theme.fontQuiet
        font.weight: theme.medium
        horizontalAlignment: Text.AlignHCenter
        wrapMode: Text.NoWrap
    }
    background: Item {
        Rectangle {
            anchors.fill: parent
            anchors.bottomMargin: theme.s4
            radius: theme.radius
            color: tab.hovered && !tab.current ? theme.hover : "transparent"
            FocusRing {
                shown: tab.visualFocus
                anchors.margins: 0
            }
        }
        Rectangle {
            anchors.bottom: parent.bottom
            x: tab.side
            width: parent.width - 2 * tab.side
            height: theme.focusLine
            color: theme.accent
            visible: tab.current
        }
    }
}
