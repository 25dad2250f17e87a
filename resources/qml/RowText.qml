import QtQuick

RowFrame {
    id: frame

    readonly property real quoted: row.quote * theme.s16
    readonly property real inner: quoted + row.depth * theme.indent

    Repeater {
        model: frame.row.quote
        Rectangle {
            required property int index
            x: index * theme.s16
            width: theme.focusLine
            height: body.height
            color: theme.line
        }
    }
    Words {
        visible: frame.row.marker.length > 0
        x: frame.row.rightToLeft ? frame.columnWidth - frame.inner + theme.s4 : frame.inner - width - theme.s8
        width: theme.indent - theme.s4
        horizontalAlignment: frame.row.rightToLeft ? Text.AlignLeft : Text.AlignRight
        text: frame.row.marker
        color: theme.quiet
        anchors.baseline: body.baseline
        wrapMode: Text.NoWrap
        Accessible.ignored: true
    }
    Body {
        id: body
        x: frame.row.rightToLeft ? frame.quoted : frame.inner
        width: frame.columnWidth - frame.inner
        html: frame.row.html
        said: frame.row.said
        color: frame.row.quiet || frame.row.quote > 0 ? theme.quiet : theme.text
        font.pixelSize: frame.row.level === 1 ? theme.fontTitle : theme.fontBody
        font.weight: frame.row.heading ? theme.strong : theme.regular
        Accessible.role: frame.row.heading ? Accessible.Heading : Accessible.Paragraph
    }
}
