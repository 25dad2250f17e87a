import QtQuick

RowFrame {
    id: frame

    readonly property real most: columnWidth * theme.bubbleMost - 2 * theme.s16

    Rectangle {
        anchors.right: parent.right
        width: body.width + 2 * theme.s16
        height: body.height + (frame.row.first ? theme.s8 : 0) + (frame.row.last ? theme.s8 : 0)
        color: theme.raised
        border.width: theme.hairline
        border.color: theme.line
        topLeftRadius: frame.row.first ? theme.radiusCard : 0
        topRightRadius: frame.row.first ? theme.radiusCard : 0
        bottomLeftRadius: frame.row.last ? theme.radiusCard : 0
        bottomRightRadius: frame.row.last ? theme.radiusCard : 0

        Body {
            id: body
            x: theme.s16
            y: frame.row.first ? theme.s8 : 0
            width: frame.row.short ? Math.min(Math.ceil(implicitWidth), frame.most) : frame.most
            html: frame.row.html
            said: "You: " + frame.row.said
        }
    }
}
