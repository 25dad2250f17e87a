// A button. A press counts only while `armed`, and only if it began then; a held key counts once.
import QtQuick

Item {
    id: press
    required property var look
    required property string text
    property string kind: "plain"
    property bool armed: true
    property bool on: true
    signal pressed()

    readonly property bool hot: armed && on
    readonly property color ground: kind === "danger" ? look.failed : kind === "main" ? look.accent : look.raised
    readonly property color ink: kind === "danger" ? look.page : kind === "main" ? look.onAccent : look.text

    implicitWidth: label.implicitWidth + 2 * look.s16
    implicitHeight: look.control + look.s4
    activeFocusOnTab: true
    Accessible.role: Accessible.Button
    Accessible.name: text
    Accessible.focusable: true
    Accessible.onPressAction: if (press.hot) press.pressed()
    Keys.onPressed: (event) => {
        if (event.key !== Qt.Key_Return && event.key !== Qt.Key_Enter && event.key !== Qt.Key_Space)
            return
        event.accepted = true
        if (press.hot)
            press.pressed()
    }

    Rectangle {
        anchors.fill: parent
        anchors.margins: -press.look.s4
        radius: press.look.radius + press.look.s4
        color: "transparent"
        border.width: press.look.focusLine
        border.color: press.look.focus
        visible: press.activeFocus
    }
    Rectangle {
        anchors.fill: parent
        radius: press.look.radius
        opacity: press.on ? 1 : press.look.off
        color: press.kind !== "plain" ? press.ground
             : area.pressed && press.hot ? press.look.pressed : area.containsMouse && press.hot ? press.look.hover : press.ground
        border.width: press.kind === "plain" ? press.look.hairline : 0
        border.color: press.look.border
        Plain {
            id: label
            look: press.look
            anchors.centerIn: parent
            text: press.text
            wrapMode: Text.NoWrap
            color: press.ink
            font.weight: press.look.medium
            font.underline: press.kind !== "plain" && area.containsMouse && press.hot
            Accessible.ignored: true
        }
    }
    MouseArea {
        id: area
        anchors.fill: parent
        hoverEnabled: true
        onPressed: (mouse) => { mouse.accepted = press.hot }
        onClicked: if (press.hot) press.pressed()
    }
}
