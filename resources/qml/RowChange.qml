import QtQuick

// A file that was changed; its lines are in the rows below.
RowFrame {
    id: frame

    ListView.onPooled: card.rest()

    Card {
        id: card
        row: frame.row
        glyph: frame.row.glyph
        copies: frame.row.copyable ? "Copy the changes" : "Copy the path"
        copyText: frame.row.copyable ? "" : frame.row.path
        onTurned: frame.turn()

        PathWords {
            width: parent.width
            whole: frame.row.path
            text: frame.row.pathShort
        }
    }
}
