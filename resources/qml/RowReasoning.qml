import QtQuick
import QtQuick.Templates as T

RowFrame {
    id: frame

    T.AbstractButton {
        id: line
        width: Math.min(parent.width, implicitWidth)
        implicitWidth: contentItem.implicitWidth + 2 * theme.s8
        implicitHeight: theme.control
        x: -theme.s8
        leftPadding: theme.s8
        hoverEnabled: true
        focusPolicy: Qt.TabFocus
        Accessible.role: Accessible.Button
        Accessible.name: frame.row.word + (frame.row.expanded ? ", shown" : ", hidden")
        Keys.onReturnPressed: click()
        Keys.onTabPressed: (event) => event.accepted = frame.ListView.view.stepFrom(line, 1)
        Keys.onBacktabPressed: (event) => event.accepted = frame.ListView.view.stepFrom(line, -1)
        onClicked: frame.turn()

        contentItem: Row {
            spacing: theme.s4
            Icon {
                anchors.verticalCenter: parent.verticalCenter
                side: theme.iconSmall
                name: frame.row.expanded ? "down" : "right"
                tint: theme.quiet
            }
            Quiet {
                anchors.verticalCenter: parent.verticalCenter
                wrapMode: Text.NoWrap
                text: frame.row.detail.length > 0 ? frame.row.word + " · " + frame.row.detail : frame.row.word
            }
        }
        background: Rectangle {
            radius: theme.radius
            color: line.hovered ? theme.hover : "transparent"
            FocusRing { shown: line.visualFocus }
        }
    }
}
