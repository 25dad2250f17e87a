import QtQuick

// What a page is about, and the one thing to do about it.
Item {
    id: lead

    property string words
    default property alias tools: tools.data
    readonly property bool stacked: width < theme.picker || tools.width > width / 2

    implicitHeight: stacked ? text.height + (tools.width > 0 ? theme.s12 + tools.height : 0) : Math.max(text.height, tools.height)

    Quiet {
        id: text
        width: lead.stacked ? parent.width : parent.width - (tools.width > 0 ? tools.width + theme.s24 : 0)
        y: lead.stacked ? 0 : Math.max(0, (parent.height - height) / 2)
        text: lead.words
        lineHeight: theme.lineReading
        Accessible.role: Accessible.StaticText
        Accessible.name: text.text
    }
    Row {
        id: tools
        x: lead.stacked ? 0 : parent.width - width
        y: lead.stacked ? text.height + theme.s12 : Math.max(0, (parent.height - height) / 2)
        spacing: theme.s8
    }
}
