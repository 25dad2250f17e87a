import QtQuick

// What is on this computer already: looked for when the person says so, never before.
Column {
    id: root

    spacing: theme.s8

    Lead {
        width: parent.width
        words: now.looking ? "Looking for model servers and programs."
             : !now.looked ? "Looks for Ollama, LM Studio, llama.cpp and vLLM on this computer, and for installed programs such as Claude Code and Codex. Nothing is looked for before you ask."
             : now.foundCount > 0 ? "Found on this computer. None of it is used before you choose it."
             : "Nothing was found. Start a model server such as Ollama (ollama serve), LM Studio or llama.cpp, then look again. A server on another computer is added with its address."
        Btn {
            glyph: "search"
            text: now.looking ? "Looking" : now.looked ? "Look again" : "Look"
            busy: now.looking
            Accessible.name: now.looked ? "Look again on this computer" : "Look on this computer"
            onClicked: setup.look()
        }
    }
    Column {
        width: parent.width
        visible: now.foundCount > 0
        Accessible.role: Accessible.List
        Accessible.name: "Found on this computer"

        Repeater {
            model: foundModel
            Item {
                id: found
                required property var row
                required property int index

                width: parent.width
                height: Math.max(words.height, use.visible ? use.height : 0) + theme.s16
                Accessible.role: Accessible.ListItem
                Accessible.name: row.said

                Rectangle {
                    width: parent.width
                    height: theme.hairline
                    color: theme.line
                    visible: found.index > 0
                }
                Icon {
                    id: icon
                    y: theme.s8
                    name: found.row.icon
                    tint: theme.quiet
                }
                Column {
                    id: words
                    anchors.left: icon.right
                    anchors.leftMargin: theme.s12
                    anchors.right: use.visible ? use.left : parent.right
                    anchors.rightMargin: use.visible ? theme.s16 : 0
                    y: theme.s8
                    spacing: theme.s4 / 2
                    Name {
                        width: parent.width
                        text: found.row.name
                        font.pixelSize: theme.fontQuiet
                        font.weight: theme.medium
                    }
                    Quiet {
                        width: parent.width
                        visible: text.length > 0
                        text: found.row.detail
                        font.pixelSize: theme.fontSmall
                        horizontalAlignment: Text.AlignLeft
                        wrapMode: Text.WrapAtWordBoundaryOrAnywhere
                        elide: Text.ElideRight
                        maximumLineCount: theme.linesMost
                    }
                    Quiet {
                        width: parent.width
                        visible: text.length > 0
                        text: found.row.note
                        font.pixelSize: theme.fontSmall
                    }
                }
                Btn {
                    id: use
                    visible: found.row.usable
                    anchors.right: parent.right
                    anchors.verticalCenter: words.verticalCenter
                    text: "Use it…"
                    Accessible.name: "Use " + found.row.name + "…"
                    onClicked: setup.useFound(found.row.id)
                }
            }
        }
    }
}
