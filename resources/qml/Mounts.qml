import QtQuick

Page {
    id: root

    gap: theme.s12

    Lead {
        width: parent.width
        words: (now.mountsOf.length > 0 ? "Everything that " + now.mountsOf + " may use. " : "") + "A mount has its own name, its own credential, and its own rules for what is done without asking you."
        Btn {
            id: of
            visible: now.mountsAgents.length > 1
            text: now.mountsOf
            most: theme.menuLeast
            glyph: "down"
            trailing: true
            Accessible.role: Accessible.ButtonMenu
            Accessible.name: "Mounts of: " + text
            onClicked: {
                of.forceActiveFocus(Qt.MouseFocusReason);
                which.show(of, now.mountsAgents.map((agent) => ({ name: agent.id, label: agent.name, explains: "", icon: "", key: "", checked: agent.id === now.mountsAgent })), "");
            }
        }
        Btn {
            glyph: proposalTable["add-mount"].icon
            text: proposalTable["add-mount"].label
            onClicked: setup.propose("add-mount", now.mountsAgent)
        }
    }
    Item {
        width: parent.width
        height: theme.s4
    }
    Repeater {
        model: mountsModel
        Mount {
            width: parent.width
            onMenuWanted: (from, entries, about) => menu.show(from, entries, about)
        }
    }
    Quiet {
        width: parent.width
        visible: now.mountCount === 0
        lineHeight: theme.lineReading
        text: !now.mountsKnown ? "Asking" : now.mountsOf + " may use nothing: it answers from what it knows. Add a mount to let it work with files, with addresses on the web, or with a server of tools."
    }

    Menu {
        id: which
        onPicked: (name) => setup.mountsOf(name)
    }
    Menu {
        id: menu
        onPicked: (name) => setup.propose(name, target)
    }
}
