import QtQuick

Page {
    id: root

    gap: theme.s24

    Lead {
        width: parent.width
        words: now.storedKnown ? "Everything of this profile is on this computer, " + now.storedSize + " in all. Keys are in the key store of your system, nowhere else."
                               : "Counting"
    }
    Column {
        width: parent.width
        visible: now.storedKnown
        Accessible.role: Accessible.List
        Accessible.name: "What is stored where"

        Repeater {
            model: storedModel
            Item {
                id: kept
                required property var row

                width: parent.width
                height: words.height + 2 * theme.s12
                Accessible.role: Accessible.ListItem
                Accessible.name: row.said

                Column {
                    id: words
                    y: theme.s12
                    width: parent.width - size.width - theme.s16
                    spacing: theme.s4
                    Name {
                        width: parent.width
                        text: kept.row.what
                        font.pixelSize: theme.fontQuiet
                        font.weight: theme.medium
                    }
                    Row {
                        width: parent.width
                        visible: kept.row.path.length > 0
                        spacing: theme.s4
                        Quiet {
                            id: path
                            width: Math.min(implicitWidth, parent.width - copy.width - theme.s4)
                            text: kept.row.path
                            font.family: theme.fontCode
                            font.pixelSize: theme.fontSmall
                            horizontalAlignment: Text.AlignLeft
                            wrapMode: Text.WrapAnywhere
                        }
                        IconBtn {
                            id: copy
                            anchors.verticalCenter: path.verticalCenter
                            side: theme.s24
                            glyph: "copy"
                            says: "Copy the path"
                            Accessible.description: kept.row.path
                            onClicked: remuda.copyText(kept.row.path)
                        }
                    }
                    Quiet {
                        width: parent.width
                        visible: text.length > 0
                        text: kept.row.words
                        font.pixelSize: theme.fontSmall
                    }
                }
                Quiet {
                    id: size
                    anchors.right: parent.right
                    y: theme.s12
                    text: kept.row.size
                    wrapMode: Text.NoWrap
                }
                Rectangle {
                    anchors.bottom: parent.bottom
                    width: parent.width
                    height: theme.hairline
                    color: theme.line
                }
            }
        }
    }
    Lead {
        width: parent.width
        words: proposalTable["export-all"].explains
        Btn {
            glyph: proposalTable["export-all"].icon
            text: proposalTable["export-all"].label
            onClicked: setup.propose("export-all")
        }
    }
    Lead {
        width: parent.width
        words: proposalTable["remove-all"].explains
        Btn {
            tint: theme.failed
            glyph: proposalTable["remove-all"].icon
            text: proposalTable["remove-all"].label
            onClicked: setup.propose("remove-all")
        }
    }
}
