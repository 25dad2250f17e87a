import QtQuick
import QtQuick.Templates as T

// What holds this window, and what it tried against it.
ListView {
    id: list

    readonly property real columnWidth: Math.max(0, Math.min(theme.measure, width - 2 * theme.s16))
    readonly property real columnLeft: (width - columnWidth) / 2

    model: isolationModel
    clip: true
    boundsBehavior: Flickable.StopAtBounds
    activeFocusOnTab: true
    onVisibleChanged: if (visible) positionViewAtBeginning()
    onCountChanged: Qt.callLater(positionViewAtBeginning)
    Accessible.role: Accessible.List
    Accessible.name: "Walls and probes"
    T.ScrollBar.vertical: Bar {}

    header: Item {
        width: list.width
        height: top.height + theme.s24
        Column {
            id: top
            x: list.columnLeft
            y: theme.s16
            width: list.columnWidth
            spacing: theme.s12
            StateMark {
                visible: now.wallLevel !== "unknown"
                icon: now.wallLevel === "walled" ? "shield" : now.wallLevel === "partly" ? "warning" : "failed"
                word: now.wallLevel === "walled" ? "Isolated" : now.wallLevel === "partly" ? "Partly isolated" : "Not isolated"
                tone: now.wallLevel === "walled" ? "up" : now.wallLevel === "partly" ? "waiting" : "failed"
            }
            Words {
                width: parent.width
                text: now.wallSentence
                visible: text.length > 0
                lineHeight: theme.lineReading
            }
            Quiet {
                width: parent.width
                lineHeight: theme.lineReading
                text: "This window shows text that models wrote. It runs in a process of its own that the system holds back. The test tries to get out of it in every way listed here and says what came of it."
            }
            Quiet {
                width: parent.width
                visible: text.length > 0
                text: now.wallSystem
            }
            Btn {
                glyph: "again"
                text: now.testing ? "Testing" : "Run again"
                busy: now.testing
                onClicked: remuda.selfTest()
            }
        }
    }
    delegate: Item {
        id: entry

        required property var row

        width: list.width
        height: body.y + body.height + theme.s8
        Accessible.role: Accessible.ListItem
        Accessible.name: row.said

        Words {
            id: heading
            visible: entry.row.heading.length > 0
            x: list.columnLeft
            y: theme.s16
            text: entry.row.heading
            font.weight: theme.strong
        }
        Item {
            id: body
            x: list.columnLeft
            y: heading.visible ? heading.y + heading.height + theme.s8 : theme.s8
            width: list.columnWidth
            height: words.height

            Column {
                id: words
                width: parent.width - verdict.width - theme.s16
                Words {
                    width: parent.width
                    text: entry.row.name
                    font.pixelSize: theme.fontQuiet
                }
                Quiet {
                    width: parent.width
                    visible: text.length > 0
                    text: entry.row.detail
                    font.pixelSize: theme.fontSmall
                }
            }
            StateMark {
                id: verdict
                anchors.right: parent.right
                icon: entry.row.icon
                word: entry.row.word
                tone: entry.row.tone
            }
        }
    }
    footer: Item {
        width: list.width
        height: theme.s32
    }
}
