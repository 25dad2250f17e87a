// The foot of a dialog: the safe answer, the answer that does it, and why that one may not be pressed yet.
import QtQuick

Rectangle {
    id: buttons
    required property var look
    required property var desk
    required property bool armed
    property string yes
    property string no
    property string yesKind: "main"
    property bool yesOn: true
    property string why
    signal agreed()
    signal declined()
    implicitHeight: look.control + look.s4 + 2 * look.s16
    color: look.page

    function takeSafe() { safe.forceActiveFocus() }

    Rectangle { width: parent.width; height: buttons.look.hairline; color: buttons.look.line }
    Plain {
        look: buttons.look
        anchors.left: parent.left
        anchors.leftMargin: buttons.look.s24
        anchors.right: row.left
        anchors.rightMargin: buttons.look.s16
        anchors.verticalCenter: parent.verticalCenter
        maximumLineCount: 2
        elide: Text.ElideRight
        text: buttons.why !== "" ? buttons.why
            : buttons.desk.waiting === 1 ? qsTr("One more question waits behind this one.")
            : buttons.desk.waiting > 1 ? qsTr("%1 more questions wait behind this one.").arg(buttons.desk.waiting) : ""
        color: buttons.look.quiet
        font.pixelSize: buttons.look.fontQuiet
    }
    Row {
        id: row
        anchors.right: parent.right
        anchors.rightMargin: buttons.look.s24
        anchors.verticalCenter: parent.verticalCenter
        spacing: buttons.look.s12
        Press { id: safe; look: buttons.look; armed: buttons.armed; text: buttons.no; onPressed: buttons.declined() }
        Press {
            look: buttons.look
            armed: buttons.armed
            on: buttons.yesOn
            kind: buttons.yesKind
            text: buttons.yes
            onPressed: buttons.agreed()
        }
    }
}
