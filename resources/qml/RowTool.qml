import QtQuick

// A tool that was called: its arguments and its result are in the rows below once it is unfolded.
RowFrame {
    id: frame

    ListView.onPooled: card.rest()

    Card {
        id: card
        row: frame.row
        glyph: "tool"
        lit: frame.row.waits
        copies: frame.row.copyable ? "Copy the result" : ""
        onTurned: frame.turn()

        Column {
            width: parent.width
            spacing: theme.s4 / 2
            Name {
                width: parent.width
                text: frame.row.title
                font.family: theme.fontCode
                font.pixelSize: theme.fontQuiet
            }
            Quiet {
                width: parent.width
                visible: text.length > 0
                text: frame.row.arguments
                font.family: theme.fontCode
                font.pixelSize: theme.fontSmall
                horizontalAlignment: Text.AlignLeft
                elide: Text.ElideRight
                wrapMode: Text.NoWrap
            }
        }
    }
}
