import QtQuick

// An item that is not loaded: a quiet bar of about its height.
RowFrame {
    Item {
        width: parent.width
        height: theme.placeholder
        Rectangle {
            y: theme.s8
            width: parent.width / 2
            height: theme.s12
            radius: theme.radius
            color: theme.sunken
        }
    }
}
