import QtQuick

Page {
    id: root

    gap: theme.s16

    Lead {
        width: parent.width
        words: "A profile is a folder of its own with its own conversations, agents, settings and keys. Two can be open at once; neither sees the other."
        Btn {
            glyph: proposalTable["add-profile"].icon
            text: proposalTable["add-profile"].label
            onClicked: setup.propose("add-profile")
        }
    }
    Column {
        width: parent.width
        Accessible.role: Accessible.List
        Accessible.name: "Profiles"

        Repeater {
            model: profilesModel
            Entry {
                id: profile
                required property var row
                required property int index

                width: parent.width
                title: row.name
                mark: row.state
                said: row.said

                Btn {
                    flat: true
                    visible: !profile.row.current
                    text: profile.row.running ? "Show its window" : proposalTable["open-profile"].label
                    Accessible.name: text + ": " + profile.row.name
                    Accessible.description: proposalTable["open-profile"].explains
                    onClicked: setup.propose("open-profile", profile.row.id)
                }
                IconBtn {
                    id: more
                    glyph: "more"
                    says: "What can be done with " + profile.row.name
                    onClicked: menu.show(more, (profile.row.current || profile.row.running ? ["rename-profile"] : ["rename-profile", "delete-profile"]).map((name) => proposalTable[name]), profile.row.id)
                }
            }
        }
    }
    Quiet {
        width: parent.width
        text: now.profilesKnown ? "A profile that is open, like this one, cannot be deleted." : "Asking"
    }

    Menu {
        id: menu
        onPicked: (name) => setup.propose(name, target)
    }
}
