import QtQuick

// A model in words: its name, what is known about it, and who says so.
Column {
    id: root

    property var row
    property string mark
    property bool where: false
    readonly property bool stacked: width < theme.form

    // Words of ours begin a line as a sentence does; a name begins it as it is written.
    function sentence(line) {
        return line.startsWith(root.row.connector) ? line : line.charAt(0).toUpperCase() + line.slice(1);
    }

    spacing: theme.s4

    Item {
        width: parent.width
        height: model.height

        Name {
            id: model
            width: Math.min(implicitWidth, parent.width - (mark.visible ? mark.width + theme.s8 : 0) - (facts.beside ? facts.width + theme.s16 : 0))
            text: root.row.model
            font.pixelSize: theme.fontQuiet
            font.weight: theme.medium
            opacity: root.row.available ? 1 : theme.off
        }
        Badge {
            id: mark
            anchors.left: model.right
            anchors.leftMargin: theme.s8
            anchors.verticalCenter: model.verticalCenter
            visible: root.mark.length > 0 && !root.stacked
            value: root.mark
        }
        Quiet {
            id: facts
            readonly property bool beside: !root.stacked && text.length > 0 && implicitWidth < parent.width / 2
            anchors.right: parent.right
            anchors.verticalCenter: model.verticalCenter
            visible: beside
            text: root.row.facts
            wrapMode: Text.NoWrap
        }
    }
    Quiet {
        width: parent.width
        visible: text.length > 0
        text: sentence([root.stacked ? root.mark : "", root.where ? root.row.connector : "", facts.beside ? "" : root.row.facts,
               root.row.efforts.length > 0 ? "effort " + root.row.efforts.join(", ") : "", root.row.marks].filter((part) => part.length > 0).join(" · "))
        font.pixelSize: theme.fontSmall
        horizontalAlignment: Text.AlignLeft
        wrapMode: Text.WrapAtWordBoundaryOrAnywhere
        elide: Text.ElideRight
        maximumLineCount: theme.linesMost
    }
    Quiet {
        width: parent.width
        visible: text.length > 0
        text: root.row.note
        font.pixelSize: theme.fontSmall
    }
}
