// Why it is asked again, on a ground of its own.
import QtQuick

Rectangle {
    id: card
    required property var look
    required property string text
    width: parent ? parent.width : 0
    visible: text !== ""
    height: visible ? words.implicitHeight + 2 * look.s12 : 0
    radius: look.radius
    color: look.failedGround
    border.width: look.hairline
    border.color: look.failed
    Plain {
        id: words
        look: card.look
        x: card.look.s16
        y: card.look.s12
        width: parent.width - 2 * card.look.s16
        text: card.text
    }
}
