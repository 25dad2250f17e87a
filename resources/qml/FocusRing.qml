import QtQuick

Rectangle {
    property bool shown: false

    anchors.fill: parent
    anchors.margins: -theme.focusLine
    color: "transparent"
    border.color: theme.focus
    border.width: theme.focusLine
    radius: theme.radius + theme.focusLine
    visible: shown
}
