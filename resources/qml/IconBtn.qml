import QtQuick
import QtQuick.Templates as T

// A button that is an icon; its words are the tip and the accessible name.
T.Button {
    id: control

    property string glyph
    property string says
    property string key
    property color tint: theme.quiet
    property real side: theme.control
    property bool primary: false

    // In a list whose rows are made in any order it is the list that knows what comes next.
    function step(by) {
        let above = parent;
        while (above && above.stepFrom === undefined)
            above = above.parent;
        return above ? above.stepFrom(control, by) : false;
    }

    implicitWidth: side
    implicitHeight: side
    opacity: enabled || primary ? 1 : theme.off
    hoverEnabled: true
    focusPolicy: Qt.TabFocus
    Accessible.role: Accessible.Button
    Accessible.name: says
    Keys.onReturnPressed: click()
    Keys.onTabPressed: (event) => event.accepted = step(1)
    Keys.onBacktabPressed: (event) => event.accepted = step(-1)
    Keys.onEnterPressed: click()

    contentItem: Item {
        Icon {
            anchors.centerIn: parent
            name: control.glyph
            tint: control.primary && control.enabled ? theme.onAccent : control.checked ? theme.accent : control.tint
        }
    }
    background: Rectangle {
        radius: theme.radius
        color: control.primary && !control.enabled ? theme.hover : control.primary ? (control.down ? theme.accentPressed : control.hovered ? theme.accentHover : theme.accent)
                               : control.down ? theme.pressed : control.hovered || control.checked ? theme.hover : "transparent"

        FocusRing { shown: control.visualFocus }
    }

    Loader {
        active: control.hovered && control.says.length > 0
        width: parent.width
        height: parent.height
        sourceComponent: Tip {
            text: control.key.length > 0 ? control.says + "   " + control.key : control.says
            visible: true
        }
    }
}
