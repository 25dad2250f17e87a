import QtQuick

RowFrame {
    Item {
        width: parent.width
        height: theme.s12 + theme.hairline
        Rectangle {
            y: theme.s8
            width: parent.width
            height: theme.hairline
            color: theme.line
        }
    }
}
