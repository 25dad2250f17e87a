import QtQuick

// A harness: how it stands here, what it may do, and what there is to do about it.
Rectangle {
    id: harness

    required property var row
    property bool open: false

    implicitHeight: column.height + 2 * theme.s16
    radius: theme.radiusCard
    color: theme.raised
    border.width: theme.hairline
    border.color: theme.line
    Accessible.role: Accessible.ListItem
    Accessible.name: row.said

    Column {
        id: column
        x: theme.s16
        y: theme.s16
        width: parent.width - 2 * theme.s16
        spacing: theme.s8

        Item {
            width: parent.width
            height: Math.max(title.height, mark.height)
            Name {
                id: title
                width: Math.min(implicitWidth, parent.width - mark.width - theme.s12)
                text: harness.row.name
                font.weight: theme.strong
            }
            StateMark {
                id: mark
                anchors.right: parent.right
                anchors.verticalCenter: title.verticalCenter
                icon: harness.row.icon
                word: harness.row.word
                tone: harness.row.tone
            }
        }
        Words {
            width: parent.width
            visible: text.length > 0
            text: harness.row.words
            font.pixelSize: theme.fontQuiet
            horizontalAlignment: Text.AlignLeft
            wrapMode: Text.WrapAtWordBoundaryOrAnywhere
        }
        Quiet {
            width: parent.width
            visible: text.length > 0
            text: harness.row.touches
            lineHeight: theme.lineReading
            horizontalAlignment: Text.AlignLeft
            wrapMode: Text.WrapAtWordBoundaryOrAnywhere
        }
        Quiet {
            width: parent.width
            visible: text.length > 0
            text: harness.row.billing
            lineHeight: theme.lineReading
            horizontalAlignment: Text.AlignLeft
            wrapMode: Text.WrapAtWordBoundaryOrAnywhere
        }
        Quiet {
            width: parent.width
            visible: text.length > 0
            text: harness.row.cap
            lineHeight: theme.lineReading
            horizontalAlignment: Text.AlignLeft
            wrapMode: Text.WrapAtWordBoundaryOrAnywhere
        }
        Quiet {
            width: parent.width
            visible: text.length > 0
            text: harness.row.versions
            horizontalAlignment: Text.AlignLeft
            wrapMode: Text.WrapAtWordBoundaryOrAnywhere
        }
        Row {
            width: parent.width
            visible: harness.row.path.length > 0
            spacing: theme.s4
            PathWords {
                id: path
                anchors.verticalCenter: copy.verticalCenter
                width: Math.min(implicitWidth, parent.width - copy.width - theme.s4)
                whole: harness.row.path
                text: harness.row.path
                color: theme.quiet
                font.pixelSize: theme.fontSmall
            }
            IconBtn {
                id: copy
                side: theme.s24
                glyph: "copy"
                says: "Copy the path of " + harness.row.name
                onClicked: remuda.copyText(harness.row.path)
            }
        }
        Rectangle {
            width: parent.width
            height: todo.height + 2 * theme.s12
            visible: harness.row.way.length > 0
            radius: theme.radius
            color: theme.sunken

            Column {
                id: todo
                x: theme.s12
                y: theme.s12
                width: parent.width - 2 * theme.s12
                spacing: theme.s8
                Words {
                    width: parent.width
                    text: harness.row.way
                    font.pixelSize: theme.fontQuiet
                    horizontalAlignment: Text.AlignLeft
                    wrapMode: Text.WrapAtWordBoundaryOrAnywhere
                }
                Repeater {
                    model: harness.row.wayCodes
                    Row {
                        id: command
                        required property string modelData

                        width: todo.width
                        spacing: theme.s4
                        Words {
                            anchors.verticalCenter: take.verticalCenter
                            width: Math.min(implicitWidth, parent.width - take.width - theme.s4)
                            text: command.modelData
                            font.family: theme.fontCode
                            font.pixelSize: theme.fontSmall
                            horizontalAlignment: Text.AlignLeft
                            wrapMode: Text.WrapAnywhere
                        }
                        IconBtn {
                            id: take
                            side: theme.s24
                            glyph: "copy"
                            says: "Copy the command " + command.modelData
                            onClicked: remuda.copyText(command.modelData)
                        }
                    }
                }
            }
        }
        Flow {
            width: parent.width
            spacing: theme.s8
            visible: harness.row.program || harness.row.canCap || harness.row.connect.length > 0

            Btn {
                visible: harness.row.connect.length > 0
                text: proposalTable["add-connector"].label
                Accessible.name: text + " " + harness.row.name
                Accessible.description: harness.row.way
                onClicked: setup.propose("add-connector", harness.row.connect)
            }
            Btn {
                visible: harness.row.canCap
                text: proposalTable["cap-cost"].label
                Accessible.name: text + " " + harness.row.name
                Accessible.description: proposalTable["cap-cost"].explains + " " + harness.row.cap
                onClicked: setup.propose("cap-cost", harness.row.id)
            }
            Btn {
                visible: harness.row.program
                text: proposalTable["pick-program"].label
                Accessible.name: text + " " + harness.row.name
                Accessible.description: proposalTable["pick-program"].explains
                onClicked: setup.propose("pick-program", harness.row.id)
            }
            Btn {
                visible: harness.row.picked
                flat: true
                text: proposalTable["forget-program"].label
                Accessible.name: text + " " + harness.row.name
                Accessible.description: proposalTable["forget-program"].explains
                onClicked: setup.propose("forget-program", harness.row.id)
            }
        }
        Item {
            width: parent.width
            height: can.height
            visible: harness.row.badges.length > 0

            Btn {
                id: can
                x: -theme.s8
                flat: true
                leftPadding: theme.s8
                glyph: harness.open ? "down" : "right"
                text: "What it can do"
                Accessible.name: text + ": " + harness.row.name + (harness.open ? ", shown" : ", folded")
                Accessible.description: harness.row.summary
                onClicked: harness.open = !harness.open
            }
            Quiet {
                anchors.left: can.right
                anchors.leftMargin: theme.s4
                anchors.right: parent.right
                anchors.verticalCenter: parent.verticalCenter
                text: harness.row.summary
                font.pixelSize: theme.fontSmall
                horizontalAlignment: Text.AlignLeft
                elide: Text.ElideRight
                wrapMode: Text.NoWrap
            }
        }
        Column {
            width: parent.width
            visible: harness.open
            spacing: theme.s8
            Accessible.role: Accessible.List
            Accessible.name: "What " + harness.row.name + " can do"

            Quiet {
                width: parent.width
                visible: text.length > 0
                text: harness.row.held
                font.pixelSize: theme.fontSmall
                lineHeight: theme.lineReading
                horizontalAlignment: Text.AlignLeft
                wrapMode: Text.WrapAtWordBoundaryOrAnywhere
            }
            Repeater {
                model: harness.open ? harness.row.badges : []
                Item {
                    id: badge
                    required property var modelData

                    width: column.width
                    height: ability.height
                    Accessible.role: Accessible.ListItem
                    Accessible.name: modelData.said

                    Icon {
                        y: theme.s4 / 2
                        side: theme.iconSmall
                        name: badge.modelData.icon
                        tint: theme[badge.modelData.tone]
                    }
                    Column {
                        id: ability
                        x: theme.iconSmall + theme.s8
                        width: parent.width - x
                        Words {
                            width: parent.width
                            text: badge.modelData.name + " · " + badge.modelData.word
                            font.pixelSize: theme.fontQuiet
                            horizontalAlignment: Text.AlignLeft
                            wrapMode: Text.WrapAtWordBoundaryOrAnywhere
                        }
                        Quiet {
                            width: parent.width
                            visible: text.length > 0
                            text: badge.modelData.note
                            font.pixelSize: theme.fontSmall
                            horizontalAlignment: Text.AlignLeft
                            wrapMode: Text.WrapAtWordBoundaryOrAnywhere
                        }
                    }
                }
            }
        }
    }
}
