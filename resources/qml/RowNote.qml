import QtQuick

// Something that happened on the way: said, but quietly.
RowFrame {
    id: frame

    Item {
        width: parent.width
        height: words.height
        Accessible.role: Accessible.StaticText
        Accessible.name: frame.row.said

        Icon {
            x: theme.s12
            y: theme.s4 / 2
            side: theme.iconSmall
            name: frame.row.icon
            tint: theme.quiet
        }
        Column {
            id: words
            x: theme.s12 + theme.iconSmall + theme.s8
            width: parent.width - x
            Quiet {
                width: parent.width
                text: frame.row.words
                lineHeight: theme.lineReading
                horizontalAlignment: Text.AlignLeft
                wrapMode: Text.WrapAtWordBoundaryOrAnywhere
            }
            Quiet {
                width: parent.width
                visible: text.length > 0
                text: frame.row.detail
                font.pixelSize: theme.fontSmall
                horizontalAlignment: Text.AlignLeft
                wrapMode: Text.WrapAtWordBoundaryOrAnywhere
            }
        }
    }
}
