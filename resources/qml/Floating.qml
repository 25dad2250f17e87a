import QtQuick

// The ground of things that float: one hairline and the one shadow there is.
Item {
    Rectangle {
        anchors.fill: parent
        anchors.topMargin: theme.shadowDrop
        anchors.bottomMargin: -theme.shadowDrop
        radius: theme.radiusCard
        color: theme.shadow
    }
    Rectangle {
        anchors.fill: parent
        radius: theme.radiusCard
        color: theme.raised
        border.width: theme.hairline
        border.color: theme.line
    }
}
