import QtQuick

// What goes on: in the trusted dialog, or as work that can be cancelled. It stands at the foot: nothing moves when it comes or goes.
Rectangle {
    id: works

    property real side: theme.s16
    readonly property alias count: all.count

    height: column.height + 2 * theme.s12
    visible: now.asked || works.count > 0
    color: theme.raised

    Rectangle {
        width: parent.width
        height: theme.hairline
        color: theme.line
    }
    Column {
        id: column
        x: works.side
        y: theme.s12
        width: parent.width - 2 * works.side
        spacing: theme.s8

        Elsewhere {}
        Repeater {
            id: all
            model: progressModel
            Item {
                id: work
                required property var row

                width: column.width
                height: Math.max(words.height, stop.height)
                Accessible.role: Accessible.ProgressBar
                Accessible.name: row.said

                Column {
                    id: words
                    anchors.verticalCenter: parent.verticalCenter
                    width: parent.width - stop.width - theme.s16
                    spacing: theme.s8
                    Words {
                        width: parent.width
                        text: work.row.percent.length > 0 ? work.row.words + "  " + work.row.percent : work.row.words
                        font.pixelSize: theme.fontQuiet
                        horizontalAlignment: Text.AlignLeft
                        elide: Text.ElideRight
                        maximumLineCount: 2
                    }
                    Rectangle {
                        width: parent.width
                        height: theme.progress
                        radius: theme.radiusPill
                        color: theme.pressed
                        visible: work.row.share >= 0
                        Rectangle {
                            width: parent.width * Math.max(0, work.row.share)
                            height: parent.height
                            radius: theme.radiusPill
                            color: theme.accent
                        }
                    }
                }
                Btn {
                    id: stop
                    anchors.right: parent.right
                    anchors.verticalCenter: parent.verticalCenter
                    text: "Cancel"
                    Accessible.name: "Cancel: " + work.row.words
                    onClicked: setup.cancel(work.row.id)
                }
            }
        }
    }
}
