import QtQuick

// What a harness means to do, and how far it is.
RowFrame {
    id: frame

    Rectangle {
        width: parent.width
        height: column.height + 2 * theme.s12
        radius: theme.radiusCard
        color: theme.sunken
        Accessible.role: Accessible.List
        Accessible.name: frame.row.said

        Column {
            id: column
            x: theme.s12
            y: theme.s12
            width: parent.width - 2 * theme.s12
            spacing: theme.s8

            Item {
                width: parent.width
                height: theme.s24
                Words {
                    id: title
                    anchors.verticalCenter: parent.verticalCenter
                    text: "Plan"
                    font.pixelSize: theme.fontQuiet
                    font.weight: theme.strong
                }
                StateMark {
                    id: mark
                    anchors.left: title.right
                    anchors.leftMargin: theme.s12
                    anchors.verticalCenter: parent.verticalCenter
                    icon: frame.row.icon
                    word: frame.row.word
                    tone: frame.row.tone
                }
                Quiet {
                    anchors.right: parent.right
                    anchors.verticalCenter: parent.verticalCenter
                    text: frame.row.facts
                    font.pixelSize: theme.fontSmall
                    wrapMode: Text.NoWrap
                }
            }
            Rectangle {
                width: parent.width
                height: theme.progress
                radius: theme.radiusPill
                color: theme.pressed
                visible: frame.row.share >= 0
                Accessible.role: Accessible.ProgressBar
                Accessible.name: frame.row.facts
                Rectangle {
                    width: parent.width * Math.max(0, frame.row.share)
                    height: parent.height
                    radius: theme.radiusPill
                    color: theme.accent
                }
            }
            Quiet {
                width: parent.width
                visible: text.length > 0
                text: frame.row.detail
            }
            Repeater {
                model: frame.row.steps
                Item {
                    id: step
                    required property var modelData

                    width: column.width
                    height: words.height
                    Accessible.role: Accessible.ListItem
                    Accessible.name: modelData.said

                    StateMark {
                        y: theme.s4 / 2
                        wordless: true
                        icon: step.modelData.icon
                        word: step.modelData.word
                        tone: step.modelData.tone
                        Accessible.ignored: true
                    }
                    Words {
                        id: words
                        x: theme.iconSmall + theme.s8
                        width: parent.width - x
                        text: step.modelData.text
                        color: step.modelData.tone === "working" ? theme.text : theme.quiet
                        font.pixelSize: theme.fontQuiet
                        font.weight: step.modelData.tone === "working" ? theme.medium : theme.regular
                        horizontalAlignment: Text.AlignLeft
                        wrapMode: Text.WrapAtWordBoundaryOrAnywhere
                    }
                }
            }
            Quiet {
                x: theme.iconSmall + theme.s8
                visible: text.length > 0
                text: frame.row.more
                font.pixelSize: theme.fontSmall
            }
        }
    }
}
