import QtQuick

RowFrame {
    id: frame

    Rectangle {
        width: parent.width
        height: words.height + 2 * theme.s12
        radius: theme.radiusCard
        color: frame.row.tone === "failed" ? theme.failedGround : frame.row.tone === "unknown" ? theme.unknownGround
             : frame.row.tone === "waiting" ? theme.waitingGround : theme.sunken

        Column {
            id: words
            x: theme.s16
            y: theme.s12
            width: parent.width - 2 * theme.s16
            spacing: theme.s4

            StateMark {
                icon: frame.row.icon
                word: frame.row.word
                tone: frame.row.tone
            }
            Words {
                width: parent.width
                text: frame.row.words
                lineHeight: theme.lineReading
                visible: text.length > 0
            }
            Quiet {
                width: parent.width
                text: frame.row.detail
                visible: text.length > 0
            }
        }
    }
}
