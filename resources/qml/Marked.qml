import QtQuick

// A sentence with an icon before it: a word in the colour of its state, and what there is to say about it.
Item {
    id: marked

    property string icon
    property string tone: "quiet"
    property string word
    property string words

    implicitHeight: column.height
    Accessible.role: Accessible.StaticText
    Accessible.name: word.length > 0 && words.length > 0 ? word + ". " + words : word + words

    Icon {
        y: theme.s4 / 2
        side: theme.iconSmall
        name: marked.icon
        tint: theme[marked.tone]
    }
    Column {
        id: column
        x: theme.iconSmall + theme.s8
        width: parent.width - x
        spacing: theme.s4 / 2

        Words {
            width: parent.width
            visible: text.length > 0
            text: marked.word
            color: theme[marked.tone]
            font.pixelSize: theme.fontQuiet
            font.weight: theme.medium
            horizontalAlignment: Text.AlignLeft
            wrapMode: Text.WrapAtWordBoundaryOrAnywhere
            Accessible.ignored: true
        }
        Words {
            width: parent.width
            visible: text.length > 0
            text: marked.words
            color: marked.word.length > 0 ? theme.quiet : theme.text
            font.pixelSize: theme.fontQuiet
            horizontalAlignment: Text.AlignLeft
            wrapMode: Text.WrapAtWordBoundaryOrAnywhere
            Accessible.ignored: true
        }
    }
}
