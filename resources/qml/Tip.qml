import QtQuick
import QtQuick.Templates as T

T.ToolTip {
    id: tip

    x: parent ? (parent.width - width) / 2 : 0
    y: parent ? parent.height + theme.s4 : 0
    implicitWidth: contentItem.implicitWidth + leftPadding + rightPadding
    implicitHeight: contentItem.implicitHeight + topPadding + bottomPadding
    margins: theme.s8
    leftPadding: theme.s8
    rightPadding: theme.s8
    topPadding: theme.s4
    bottomPadding: theme.s4
    delay: theme.tipAfter

    contentItem: Words {
        text: tip.text
        color: theme.page
        font.pixelSize: theme.fontSmall
        wrapMode: Text.WrapAnywhere
        width: Math.min(implicitWidth, theme.tipMost)
    }
    background: Rectangle {
        color: theme.text
        radius: theme.radius
    }
}
