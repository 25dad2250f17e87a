import QtQuick

// Something that the agent may use: how it stands, whose credential it goes by, and what each of its tools would do.
Rectangle {
    id: mount

    required property var row
    property bool open: false
    signal menuWanted(Item from, var entries, string about)

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
            height: more.height

            Name {
                id: title
                anchors.verticalCenter: parent.verticalCenter
                width: Math.min(implicitWidth, parent.width - mark.width - more.width - 2 * theme.s12)
                text: mount.row.alias
                font.family: theme.fontCode
                font.weight: theme.medium
            }
            StateMark {
                id: mark
                anchors.right: more.left
                anchors.rightMargin: theme.s8
                anchors.verticalCenter: parent.verticalCenter
                icon: mount.row.icon
                word: mount.row.word
                tone: mount.row.tone
            }
            IconBtn {
                id: more
                anchors.right: parent.right
                anchors.rightMargin: -theme.s8
                glyph: "more"
                says: "What can be done with " + mount.row.alias
                onClicked: {
                    // Once the menu closes the focus comes back to here, and the page stays where it is.
                    more.forceActiveFocus(Qt.MouseFocusReason);
                    mount.menuWanted(more, mount.row.deeds.map((name) => name === "switch-mount" ? Object.assign({}, proposalTable[name], { label: mount.row.switch }) : proposalTable[name]), mount.row.id);
                }
            }
        }
        Repeater {
            model: [mount.row.words, mount.row.what, mount.row.about].filter((line) => line.length > 0)
            Quiet {
                required property string modelData
                width: column.width
                text: modelData
                horizontalAlignment: Text.AlignLeft
                wrapMode: Text.WrapAtWordBoundaryOrAnywhere
                elide: Text.ElideRight
                maximumLineCount: theme.linesMost
            }
        }
        Marked {
            width: parent.width
            visible: mount.row.credential.length > 0
            icon: mount.row.credentialIcon
            tone: mount.row.credentialTone
            word: mount.row.credential
            words: mount.row.credentialWords
        }
        Repeater {
            model: mount.row.warnings
            Marked {
                required property string modelData
                width: column.width
                icon: "warning"
                tone: "waiting"
                words: modelData
            }
        }
        Flow {
            width: parent.width
            visible: mount.row.quick.length > 0 || mount.row.greyed
            spacing: theme.s8

            Repeater {
                model: mount.row.quick
                Btn {
                    required property string modelData
                    text: modelData === "switch-mount" ? mount.row.switch : proposalTable[modelData].label
                    Accessible.name: text + " " + mount.row.alias
                    Accessible.description: proposalTable[modelData].explains
                    onClicked: setup.propose(modelData, mount.row.id)
                }
            }
            Btn {
                visible: mount.row.greyed
                enabled: false
                text: proposalTable["sign-in"].label
                Accessible.name: text + " " + mount.row.alias
                Accessible.description: mount.row.signInWords
            }
        }
        Quiet {
            width: parent.width
            visible: mount.row.signInWords.length > 0
            text: mount.row.signInWords
            font.pixelSize: theme.fontSmall
            horizontalAlignment: Text.AlignLeft
            wrapMode: Text.WrapAtWordBoundaryOrAnywhere
            elide: Text.ElideRight
            maximumLineCount: theme.linesMost
        }
        Item {
            id: foot
            width: parent.width
            height: can.height + (used.beside ? 0 : used.height + theme.s4)

            Btn {
                id: can
                x: -theme.s8
                flat: true
                leftPadding: theme.s8
                enabled: mount.row.tools.length > 0
                opacity: 1
                glyph: !enabled ? "" : mount.open ? "down" : "right"
                most: column.width - 2 * theme.s8 - theme.icon
                text: mount.row.summary
                Accessible.name: text + " of " + mount.row.alias + (enabled ? (mount.open ? ", shown" : ", folded") : "")
                onClicked: mount.open = !mount.open
            }
            Quiet {
                id: used
                readonly property bool beside: can.width + width + theme.s12 <= column.width
                x: beside ? parent.width - width : 0
                y: beside ? (can.height - height) / 2 : can.height + theme.s4
                text: mount.row.used
                font.pixelSize: theme.fontSmall
                wrapMode: Text.NoWrap
            }
        }
        Column {
            width: parent.width
            visible: mount.open
            spacing: theme.s12
            Accessible.role: Accessible.List
            Accessible.name: "Tools of " + mount.row.alias

            Repeater {
                model: mount.open ? mount.row.tools : []
                MountTool {
                    width: column.width
                }
            }
            Quiet {
                width: parent.width
                visible: text.length > 0
                text: mount.row.more
                font.pixelSize: theme.fontSmall
            }
        }
    }
}
