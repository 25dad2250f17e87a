// What is asked about: its name and where or what it is, on a ground of its own. Both may be anybody's words.
import QtQuick

Rectangle {
    id: about
    required property var look
    required property string title
    property string detail
    width: parent ? parent.width : 0
    visible: title !== ""
    height: visible ? card.implicitHeight + 2 * look.s12 : 0
    radius: look.radius
    color: look.sunken
    border.width: look.hairline
    border.color: look.line
    Column {
        id: card
        x: about.look.s16
        y: about.look.s12
        width: parent.width - 2 * about.look.s16
        spacing: about.look.s4
        Plain { look: about.look; width: parent.width; text: about.title; font.weight: about.look.medium }
        Plain {
            look: about.look
            width: parent.width
            visible: text !== ""
            text: about.detail
            color: about.look.quiet
            font.family: about.look.fontCode
            font.pixelSize: about.look.fontQuiet
        }
    }
}
