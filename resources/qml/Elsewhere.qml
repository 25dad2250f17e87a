import QtQuick

// The trusted dialog is open: the way on is there.
Row {
    id: elsewhere

    visible: now.asked
    spacing: theme.s8
    Accessible.role: Accessible.AlertMessage
    Accessible.name: words.text

    Icon {
        anchors.verticalCenter: parent.verticalCenter
        side: theme.iconSmall
        name: "window"
        tint: theme.waiting
    }
    Words {
        id: words
        text: "Go on in the window that has opened."
        color: theme.waiting
        font.pixelSize: theme.fontQuiet
    }
}
