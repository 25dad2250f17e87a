import QtQuick

// Lines of an output or of a diff: a part of a card, as large as its bound at most.
RowFrame {
    id: frame

    readonly property real lead: row.alone ? theme.s12 : theme.s4
    readonly property real side: columnWidth < theme.picker || row.alone ? theme.s12 : theme.s12 + theme.iconSmall + theme.s8

    Rectangle {
        width: frame.columnWidth
        height: words.height + (frame.row.first ? frame.lead : 0) + (frame.row.last ? theme.s12 : 0)
        color: theme.sunken
        topLeftRadius: frame.row.first && frame.row.alone ? theme.radiusCard : 0
        topRightRadius: topLeftRadius
        bottomLeftRadius: frame.row.last ? theme.radiusCard : 0
        bottomRightRadius: bottomLeftRadius

        Body {
            id: words
            x: frame.side
            y: frame.row.first ? frame.lead : 0
            width: parent.width - frame.side - theme.s12
            font.family: theme.fontCode
            font.pixelSize: theme.fontQuiet
            horizontalAlignment: TextEdit.AlignLeft
            tabStopDistance: theme.tab
            html: frame.row.html
            said: frame.row.said
            Accessible.role: Accessible.EditableText
        }
    }
}
