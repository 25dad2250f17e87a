import QtQuick

Page {
    id: root

    gap: theme.s12

    Lead {
        width: parent.width
        words: (now.mountsOf.length > 0 ? "Everything that " + now.mountsOf + " may use. " : "") + "A mount has its own name, its own credential, and its own rules for what is done without asking you."
        Btn {
            glyph: proposalTable["add-mount"].icon
            text: proposalTable["add-mount"].label
            onClicked: setup.propose("add-mount")
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
        id: menu
        onPicked: (name) => setup.propose(name, target)
    }
}
