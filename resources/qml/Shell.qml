import QtQuick

// The first frame: ground and nothing else. What fills it is loaded after the walls stand.
Window {
    id: shell

    property url content

    width: theme.windowWidth
    height: theme.windowHeight
    minimumWidth: theme.windowLeastWidth
    minimumHeight: theme.windowLeastHeight
    visible: true
    color: theme.page
    title: "Remuda"

    Loader {
        anchors.fill: parent
        focus: true
        source: shell.content
    }
}
