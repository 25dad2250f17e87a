// A word inside a field that does something to it.
import QtQuick

Item {
    id: small
    required property var look
    required property string text
    property bool checkable: false
    property bool checked: false
    signal pressed()
    implicitWidth: label.implicitWidth + 2 * look.s8
    implicitHeight: look.control
    activeFocusOnTab: true
    Accessible.role: checkable ? Accessible.CheckBox : Accessible.Button
    Accessible.name: text
    Accessible.focusable: true
    Accessible.checkable: checkable
    Accessible.checked: checked
    Accessible.onPressAction: small.pressed()
    Keys.onPressed: (event) => {
        if (event.key !== Qt.Key_Return && event.key !== Qt.Key_Enter && event.key !== Qt.Key_Space)
            return
        event.accepted = true
        small.pressed()
    }
    Rectangle {
        anchors.fill: parent
        anchors.margins: small.look.focusLine
        radius: small.look.radius
        color: area.containsMouse ? small.look.hover : "transparent"
        border.width: small.activeFocus ? small.look.focusLine : 0
        border.color: small.look.focus
    }
    Plain {
        id: label
        look: small.look
        anchors.centerIn: parent
        text: small.text
        wrapMode: Text.NoWrap
        color: small.look.accent
        font.pixelSize: small.look.fontQuiet
        font.weight: small.look.medium
        Accessible.ignored: true
    }
    MouseArea { id: area; anchors.fill: parent; hoverEnabled: true; onClicked: small.pressed() }
}
