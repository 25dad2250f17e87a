import QtQuick

// A row of the transcript: air above it, then its content on the measure.
Item {
    id: frame

    required property var row
    required property int index
    readonly property real columnWidth: ListView.view ? ListView.view.columnWidth : 0
    readonly property real columnLeft: ListView.view ? ListView.view.columnLeft : 0
    readonly property real air: row.space === "message" ? theme.s24 : row.space === "section" ? theme.s16
                              : row.space === "block" ? theme.s12 : row.space === "tight" ? theme.s4 : 0
    default property alias content: column.data

    // Unfold or fold what this row is the head of.
    function turn() { ListView.view.turn(index); }

    width: ListView.view ? ListView.view.width : 0
    height: air + column.height

    Item {
        id: column
        x: frame.columnLeft
        y: frame.air
        width: frame.columnWidth
        height: childrenRect.height
    }
}
