import QtQuick

// A command that a harness ran; what it wrote is in the rows below.
RowFrame {
    id: frame

    ListView.onPooled: card.rest()

    Card {
        id: card
        row: frame.row
        glyph: "program"
        copies: frame.row.copyable ? "Copy the output" : "Copy the command"
        copyText: frame.row.copyable ? "" : frame.row.command
        onTurned: frame.turn()

        wanted: words.implicitWidth

        Body {
            id: words
            width: parent.width
            font.family: theme.fontCode
            font.pixelSize: theme.fontQuiet
            horizontalAlignment: TextEdit.AlignLeft
            html: frame.row.html
            said: frame.row.command
            Accessible.role: Accessible.EditableText
        }
    }
}
