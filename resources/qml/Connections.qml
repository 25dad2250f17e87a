import QtQuick

Page {
    id: root

    gap: theme.s24

    Lead {
        width: parent.width
        words: "Where models are. A key is typed in a window of its own and kept by the key store of your system; this window never sees it."
        Btn {
            primary: now.ownConnectors === 0
            glyph: proposalTable["add-connector"].icon
            text: proposalTable["add-connector"].label
            onClicked: setup.propose("add-connector")
        }
    }
    Note {
        width: parent.width
        visible: now.keyStoreState !== "ok"
        icon: "key"
        tone: now.keyStoreState === "slow" || now.keyStoreState === "locked" ? "waiting" : "failed"
        words: now.keyStoreSentence
        way: now.keyStoreWay
    }
    Column {
        width: parent.width
        Accessible.role: Accessible.List
        Accessible.name: "Connectors"

        Repeater {
            model: connectorsModel
            Entry {
                id: connection
                required property var row
                required property int index

                width: parent.width
                title: row.name
                lines: [row.what, row.state, row.used.length > 0 ? "Used by " + row.used : ""]
                finding: row.tested
                findingIcon: row.icon
                findingTone: row.tone
                said: row.said

                Btn {
                    flat: true
                    text: connection.row.testing ? "Testing" : proposalTable.test.label
                    busy: connection.row.testing
                    Accessible.name: text + " " + connection.row.name
                    Accessible.description: proposalTable.test.explains
                    onClicked: if (!busy) setup.test(connection.row.id)
                }
                Btn {
                    flat: true
                    text: "Models"
                    Accessible.name: "Models of " + connection.row.name
                    onClicked: setup.modelsOf(connection.row.id)
                }
                IconBtn {
                    id: more
                    opacity: connection.row.removable ? 1 : 0
                    enabled: connection.row.removable
                    glyph: "more"
                    says: "What can be done with " + connection.row.name
                    onClicked: menu.show(more, ["change-key", "edit-connector", "refresh", "remove-connector"].map((name) => proposalTable[name]), connection.row.id)
                }
            }
        }
    }
    Quiet {
        width: parent.width
        visible: now.ownConnectors === 0
        text: "Only the tiny model is here. Add a service with a key, or look for a model server on this computer."
        lineHeight: theme.lineReading
    }
    Column {
        width: parent.width
        spacing: theme.s8
        Heading {
            width: parent.width
            text: "On this computer"
        }
        FoundList { width: parent.width }
    }
    Column {
        width: parent.width
        spacing: theme.s4
        Heading {
            width: parent.width
            text: "Network"
        }
        Lead {
            width: parent.width
            words: now.proxy.length > 0 ? "Proxy · " + now.proxy + "\nCertificates · " + now.certificates : "Asking"
            Btn {
                flat: true
                text: proposalTable.network.label
                Accessible.name: "Change how the network is reached…"
                Accessible.description: proposalTable.network.explains
                onClicked: setup.propose("network")
            }
        }
    }

    Menu {
        id: menu
        onPicked: (name) => name === "refresh" ? setup.refresh(target) : setup.propose(name, target)
    }
}
