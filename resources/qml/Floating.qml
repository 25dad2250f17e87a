import QtQuick

// The ground of things that float: one hairline and the one shadow there is, in thin layers.
Item {
    id: ground

    Repeater {
        model: theme.shadowDrop
        Rectangle {
            required property int index
            x: -index
            y: 1
            width: ground.width + 2 * index
            height: ground.height + index
            radius: theme.radiusCard + index
            color: theme.shadow
        }
    }
    Rectangle {
        anchors.fill: parent
        radius: theme.radiusCard
        color: theme.raised
        border.width: theme.hairline
        border.color: theme.line
    }
}
