import QtQuick

// Something to know before going on: what it is, and the way on.
Rectangle {
    id: note

    property string icon
    property string tone: "waiting"
    property string words
    property string way

    implicitHeight: column.height + 2 * theme.s12
    radius: theme.radiusCard
    color: tone === "failed" ? theme.failedGround : tone === "waiting" ? theme.waitingGround : theme.sunken
    border.width: theme.hairline
    border.color: theme.line
    Accessible.role: Accessible.AlertMessage
    Accessible.name: words + " " + way

    Icon {
        id: glyph
        x: theme.s16
        y: theme.s12
        name: note.icon
        tint: theme[note.tone]
    }
    Column {
        id: column
        anchors.left: glyph.right
        anchors.leftMargin: theme.s12
        anchors.right: parent.right
        anchors.rightMargin: theme.s16
        y: theme.s12
        spacing: theme.s4
        Words {
            width: parent.width
            text: note.words
            font.pixelSize: theme.fontQuiet
            font.weight: theme.medium
        }
        Quiet {
            width: parent.width
            visible: text.length > 0
            text: note.way
        }
    }
}
