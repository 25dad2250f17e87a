import QtQuick
import QtQuick.Templates as T

T.ScrollBar {
    id: bar

    implicitWidth: theme.bar + theme.s4
    minimumSize: height > 0 ? Math.min(1, theme.barLeast / height) : 0
    policy: T.ScrollBar.AsNeeded
    padding: theme.s4 / 2
    hoverEnabled: true
    visible: size < 1

    contentItem: Rectangle {
        implicitWidth: theme.bar
        radius: theme.radiusBar
        color: bar.pressed ? theme.quiet : bar.hovered ? theme.border : theme.line
    }
}
