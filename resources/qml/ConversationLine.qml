import QtQuick
import QtQuick.Templates as T

Item {
    id: line

    required property var row
    required property int index
    property bool resting: false
    signal opened

    // Out of sight and kept for another row: nothing may move in it.
    ListView.onPooled: resting = true
    ListView.onReused: resting = false

    function open() {
        remuda.select(row.id);
        opened();
    }

    width: ListView.view ? ListView.view.width : 0
    height: button.y + button.height
    Accessible.role: Accessible.ListItem
    Accessible.name: row.said
    Accessible.selected: row.chosen

    Quiet {
        id: heading
        visible: line.row.heading.length > 0
        x: theme.s16
        y: theme.s12
        text: line.row.heading
        font.pixelSize: theme.fontSmall
        font.weight: theme.medium
    }
    T.AbstractButton {
        id: button
        x: theme.s8
        y: heading.visible ? heading.y + heading.height + theme.s4 : 0
        width: parent.width - 2 * theme.s8
        height: theme.row
        hoverEnabled: true
        focusPolicy: Qt.NoFocus
        Accessible.ignored: true
        onClicked: line.open()

        Words {
            id: title
            x: theme.s8
            y: theme.s8
            width: parent.width - 2 * theme.s8 - (pin.visible ? pin.width + theme.s4 : 0)
            text: line.row.title
            horizontalAlignment: Text.AlignLeft
            font.pixelSize: theme.fontQuiet
            font.weight: line.row.chosen ? theme.medium : theme.regular
            elide: Text.ElideRight
            wrapMode: Text.NoWrap
        }
        Icon {
            id: pin
            visible: line.row.pinned
            anchors.right: parent.right
            anchors.rightMargin: theme.s8
            anchors.verticalCenter: title.verticalCenter
            side: theme.iconSmall
            name: "pin"
            tint: theme.quiet
        }
        Quiet {
            id: second
            x: theme.s8
            horizontalAlignment: Text.AlignLeft
            anchors.top: title.bottom
            width: parent.width - 2 * theme.s8 - (mark.visible ? mark.width + theme.s8 : 0)
            text: line.row.subtitle
            font.pixelSize: theme.fontSmall
            elide: Text.ElideRight
            wrapMode: Text.NoWrap
        }
        StateMark {
            id: mark
            visible: line.row.word.length > 0 && !line.resting
            anchors.right: parent.right
            anchors.rightMargin: theme.s8
            anchors.verticalCenter: second.verticalCenter
            icon: line.row.icon
            word: line.row.word
            tone: line.row.tone
        }
        background: Rectangle {
            radius: theme.radius
            color: line.row.chosen ? theme.chosen : button.hovered ? theme.hover : "transparent"
            FocusRing { shown: line.ListView.isCurrentItem && line.ListView.view.activeFocus }
        }
    }
}
