import QtQuick
import QtQuick.Templates as T

// Three ways to a first answer, in order of effort.
Flickable {
    id: root

    contentHeight: column.height + 2 * theme.s32
    boundsBehavior: Flickable.StopAtBounds
    clip: true
    T.ScrollBar.vertical: Bar {}

    Column {
        id: column
        x: Math.max(theme.s16, (root.width - width) / 2)
        y: Math.max(theme.s24, (root.height - height) / 2)
        width: Math.min(theme.form, root.width - 2 * theme.s16)
        spacing: theme.s12

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
            text: "There is no account. You can choose differently in every conversation, and change your mind in the middle of one."
        }
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
        Way {
            width: parent.width
            glyph: "server"
            title: "Use what is here"
            words: "A model server on this computer, such as Ollama, LM Studio or llama.cpp. You give its address in a window of its own."
            onClicked: remuda.addConnector()
        }
        Way {
            width: parent.width
            glyph: "key"
            title: "Add a key"
            words: "For any service that speaks the OpenAI protocol. The key is typed in a window of its own and kept by your system's key store; this window never sees it."
            onClicked: remuda.addConnector()
        }
    }
}
