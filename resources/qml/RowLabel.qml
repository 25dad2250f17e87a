import QtQuick

RowFrame {
    id: frame

    Quiet {
        x: theme.s12
        text: frame.row.words
        font.pixelSize: theme.fontSmall
        font.weight: theme.medium
    }
}
