import QtQuick

RowFrame {
    id: frame

    readonly property real inner: row.quote * theme.s16 + row.depth * theme.indent

    Body {
        x: frame.inner
        width: frame.columnWidth - frame.inner
        html: frame.row.html
        said: frame.row.said
        font.pixelSize: theme.fontQuiet
        color: frame.row.quiet ? theme.quiet : theme.text
        Accessible.role: Accessible.Table
    }
}
