import QtQuick

Page {
    id: root

    gap: theme.s12

    Lead {
        width: parent.width
        words: "An agent is a name, instructions, a model and what it may touch. Each keeps its own conversations."
        Btn {
            glyph: proposalTable["add-agent"].icon
            text: proposalTable["add-agent"].label
            onClicked: setup.propose("add-agent")
        }
    }
    Item {
        width: parent.width
        height: theme.s4
    }
    Repeater {
        model: agentsModel
        Entry {
            id: agent
            required property var row
            required property int index

            width: parent.width
            card: true
            title: row.name
            mark: row.current ? "in use" : ""
            lines: [row.description, row.sentence.length > 0 ? "With " + row.sentence : "", [row.preset, row.tools].filter((part) => part.length > 0).join(" · "), row.count]
            said: row.said

            Btn {
                text: proposalTable.start.label
                Accessible.name: text + " with " + agent.row.name
                onClicked: remuda.startWith(agent.row.id)
            }
            IconBtn {
                id: more
                glyph: "more"
                says: "What can be done with " + agent.row.name
                onClicked: menu.show(more, ["edit-agent", "duplicate-agent", "delete-agent"].map((name) => proposalTable[name]), agent.row.id)
            }
        }
    }
    Quiet {
        width: parent.width
        visible: now.agentCount === 0
        text: now.agentsKnown ? "No agent is here. Make one to begin a conversation." : "Asking"
    }

    Menu {
        id: menu
        onPicked: (name) => setup.propose(name, target)
    }
}
