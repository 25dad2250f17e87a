// What is asked, and by whom.
import QtQuick

Column {
    id: heading
    required property var look
    required property string text
    property string askedBy
    width: parent ? parent.width : 0
    spacing: look.s4
    Plain {
        look: heading.look
        width: parent.width
        text: heading.text
        font.pixelSize: heading.look.fontTitle
        font.weight: heading.look.strong
        Accessible.role: Accessible.Heading
    }
    Plain {
        look: heading.look
        width: parent.width
        visible: heading.askedBy !== ""
        text: qsTr("Asked by %1").arg(heading.askedBy)
        color: heading.look.quiet
        font.pixelSize: heading.look.fontQuiet
    }
}
