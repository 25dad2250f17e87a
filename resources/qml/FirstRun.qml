import QtQuick

// Three ways to a first answer, in order of effort.
Page {
    id: root

    room: theme.form
    gap: theme.s12
    centred: true

    Icon {
        side: theme.markLarge
        name: "mark"
        tint: theme.accent
    }
    Words {
        width: parent.width
        text: "How should your first conversation run?"
        font.pixelSize: theme.fontLarge
        font.weight: theme.strong
        Accessible.role: Accessible.Heading
        Accessible.name: text
    }
    Quiet {
        width: parent.width
        bottomPadding: theme.s12
        lineHeight: theme.lineReading
        text: "There is no account. You can choose differently in every conversation, and another model in the middle of one."
    }
    Elsewhere {}
    Way {
        width: parent.width
        primary: true
        enabled: now.builtin.length > 0
        glyph: "play"
        title: "Try it now"
        words: now.builtin.length > 0 ? "A tiny model on this computer: no key, no network. It shows how Remuda works; do not rely on what it says."
                                      : "The tiny model is not installed on this computer."
        onClicked: remuda.tryBuiltin()
    }
    WayCard {
        width: parent.width
        glyph: "server"
        title: "Use what is here"
        FoundList { width: parent.width }
    }
    WayCard {
        width: parent.width
        glyph: "key"
        title: "Add a key"
        Quiet {
            width: parent.width
            lineHeight: theme.lineReading
            text: "The key is typed in a window of its own and kept by the key store of your system; this window never sees it. With a key of OpenAI or Anthropic, their programs Codex and Claude can work in a folder of yours."
        }
        Flow {
            width: parent.width
            spacing: theme.s8
            Repeater {
                model: [{ target: "openai", label: "OpenAI…" }, { target: "anthropic", label: "Anthropic…" }, { target: "compatible", label: "Another service…" }]
                Btn {
                    required property var modelData
                    text: modelData.label
                    Accessible.name: "Add a key: " + text
                    onClicked: setup.propose("add-connector", modelData.target)
                }
            }
        }
    }
}
