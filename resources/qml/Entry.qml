import QtQuick

// One thing that was set up: its name, what there is to say about it, and what can be done with it.
Item {
    id: entry

    property string title
    property string mark
    property var lines: []
    property string finding
    property string findingIcon
    property string findingTone: "done"
    property string said
    property bool card: false
    property bool drawn: true
    default property alias tools: tools.data
    readonly property bool stacked: width < theme.picker && lines.length > 0
    readonly property real side: card ? theme.s16 : 0

    implicitHeight: (stacked && tools.width > 0 ? tools.y + tools.height : Math.max(words.y + words.height, tools.y + tools.height)) + theme.s16
    Accessible.role: Accessible.ListItem
    Accessible.name: said

    Rectangle {
        anchors.fill: parent
        visible: entry.card
        radius: theme.radiusCard
        color: theme.raised
        border.width: theme.hairline
        border.color: theme.line
    }
    Column {
        id: words
        x: entry.side
        y: theme.s16
        width: parent.width - 2 * entry.side - (entry.stacked || tools.width <= 0 ? 0 : tools.width + theme.s16)
        spacing: theme.s4 / 2

        Row {
            width: parent.width
            spacing: theme.s8
            bottomPadding: theme.s4 / 2
            Name {
                id: title
                width: Math.min(implicitWidth, parent.width - (mark.visible ? mark.width + theme.s8 : 0))
                text: entry.title
                font.weight: theme.strong
            }
            Badge {
                id: mark
                anchors.verticalCenter: title.verticalCenter
                visible: entry.mark.length > 0
                value: entry.mark
            }
        }
        Repeater {
            model: entry.lines.filter((line) => line.length > 0)
            Quiet {
                required property string modelData
                width: words.width
                text: modelData
                wrapMode: Text.WrapAtWordBoundaryOrAnywhere
                elide: Text.ElideRight
                maximumLineCount: theme.linesMost
            }
        }
        Row {
            width: parent.width
            visible: entry.finding.length > 0
            topPadding: theme.s4
            spacing: theme.s8
            Icon {
                id: icon
                visible: name.length > 0
                side: theme.iconSmall
                name: entry.findingIcon
                tint: theme[entry.findingTone]
            }
            Words {
                width: parent.width - (icon.visible ? icon.width + theme.s8 : 0)
                text: entry.finding
                color: theme[entry.findingTone]
                font.pixelSize: theme.fontQuiet
                horizontalAlignment: Text.AlignLeft
                Accessible.role: Accessible.StaticText
                Accessible.name: text
            }
        }
    }
    Row {
        id: tools
        x: entry.stacked ? entry.side : parent.width - width - entry.side
        y: entry.stacked ? words.y + words.height + theme.s12 : theme.s12
        spacing: theme.s4
    }
    Rectangle {
        anchors.bottom: parent.bottom
        width: parent.width
        height: theme.hairline
        color: theme.line
        visible: entry.drawn && !entry.card
    }
}
