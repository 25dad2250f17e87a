import QtQuick

// A way to a first answer that takes more than one click: what it is, and what to do about it.
Rectangle {
    id: way

    property string glyph
    property string title
    default property alias content: column.data

    implicitHeight: column.height + 2 * theme.s16
    radius: theme.radiusCard
    color: theme.raised
    border.width: theme.hairline
    border.color: theme.line
    Accessible.role: Accessible.Grouping
    Accessible.name: title

    Icon {
        id: icon
        x: theme.s16
        y: theme.s16
        side: theme.mark
        name: way.glyph
        tint: theme.quiet
    }
    Column {
        id: column
        anchors.left: icon.right
        anchors.leftMargin: theme.s16
        anchors.right: parent.right
        anchors.rightMargin: theme.s16
        y: theme.s16
        spacing: theme.s8

        Heading {
            width: parent.width
            text: way.title
        }
    }
}
