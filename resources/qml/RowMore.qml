import QtQuick

// The rest of a long item is on its way as soon as this row is seen.
RowFrame {
    id: frame

    function ask() { remuda.more(frame.index); }

    onRowChanged: Qt.callLater(ask)
    Component.onCompleted: Qt.callLater(ask)

    Quiet {
        width: parent.width
        height: theme.control
        text: frame.row.said
    }
}
