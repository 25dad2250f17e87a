import QtQuick
import QtQuick.Templates as T

// The folder that the harness works in and what it may do there: always in sight, chosen in the trusted dialog.
T.AbstractButton {
    id: chip

    property real most: 0
    readonly property bool some: now.folder.length > 0
    readonly property bool choosable: now.folderUse === "required" || now.folderUse === "optional"
    readonly property bool needed: now.folderUse === "required"
    readonly property string words: some ? now.folderShort : needed ? "Choose a folder…" : "Work in a folder…"

    readonly property real around: 2 * theme.s12 + theme.iconSmall + 2 * theme.s8 + (more.visible ? more.width + theme.s8 : 0)
    readonly property real beyond: (access.visible ? access.width + theme.s8 : 0) + (more.visible ? more.width + theme.s8 : 0)

    function choose() { setup.propose("choose-folder", now.conversation); }

    visible: some || choosable
    implicitWidth: 2 * theme.s12 + theme.iconSmall + theme.s8 + path.implicitWidth + beyond
    implicitHeight: theme.control
    hoverEnabled: true
    focusPolicy: Qt.TabFocus
    Accessible.role: choosable ? (some ? Accessible.ButtonMenu : Accessible.Button) : Accessible.StaticText
    Accessible.name: some ? "Folder " + now.folderShort + (now.access.length > 0 ? ", " + now.access : "") : words
    Accessible.description: some ? now.folder + (choosable ? "" : ". It stays the same in this conversation.") : proposalTable["choose-folder"].explains
    Keys.onReturnPressed: click()
    Keys.onEnterPressed: click()
    onClicked: {
        if (!choosable)
            return;
        if (!some)
            choose();
        else
            menu.show(chip, [Object.assign({}, proposalTable["choose-folder"], { label: "Choose another folder…" })]
                            .concat(now.folderUse === "optional" ? [proposalTable["clear-folder"]] : []), now.conversation);
    }

    contentItem: Item {
        Row {
            id: row
            x: theme.s12
            anchors.verticalCenter: parent.verticalCenter
            spacing: theme.s8

            Icon {
                anchors.verticalCenter: parent.verticalCenter
                side: theme.iconSmall
                name: "folder"
                tint: chip.some || !chip.needed ? theme.quiet : theme.accent
            }
            Words {
                id: path
                anchors.verticalCenter: parent.verticalCenter
                width: Math.max(0, Math.min(implicitWidth, chip.width - 2 * theme.s12 - theme.iconSmall - theme.s8 - chip.beyond))
                text: chip.words
                color: chip.some || !chip.needed ? theme.text : theme.accent
                font.pixelSize: theme.fontSmall
                font.weight: theme.medium
                elide: Text.ElideMiddle
                wrapMode: Text.NoWrap
            }
            Quiet {
                id: access
                anchors.verticalCenter: parent.verticalCenter
                visible: chip.some && text.length > 0
                width: Math.min(implicitWidth, Math.max(chip.most / 2, chip.most - chip.around - path.implicitWidth))
                text: now.access
                font.pixelSize: theme.fontSmall
                elide: Text.ElideRight
                wrapMode: Text.NoWrap
            }
            Icon {
                id: more
                anchors.verticalCenter: parent.verticalCenter
                visible: chip.some && chip.choosable
                side: theme.iconSmall
                name: "down"
                tint: theme.quiet
            }
        }
    }
    background: Rectangle {
        radius: theme.radiusPill
        color: chip.choosable && chip.down ? theme.pressed : chip.choosable && chip.hovered ? theme.hover : theme.sunken
        border.width: theme.hairline
        border.color: chip.some || !chip.needed ? theme.line : theme.accent
        FocusRing {
            shown: chip.visualFocus
            radius: theme.radiusPill
        }
    }

    Menu {
        id: menu
        x: 0
        y: -height - theme.s4
        onPicked: (name) => setup.propose(name, target)
    }
    Loader {
        active: (chip.hovered || chip.visualFocus) && chip.some && !menu.opened
        width: parent.width
        height: parent.height
        sourceComponent: Tip {
            text: now.folder + (now.access.length > 0 ? "\n" + now.access : "") + (chip.choosable ? "" : "\nFixed since this conversation began.")
            visible: true
        }
    }
}
