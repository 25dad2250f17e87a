import QtQuick
import QtQuick.Templates as T

// A button with words. `primary` is the one main action of a place; what is `busy` keeps the focus.
T.Button {
    id: control

    property string glyph
    property bool primary: false
    property real most: 0
    property bool small: false
    property bool trailing: false
    property bool busy: false
    property color tint: primary ? theme.onAccent : theme.text

    // In a list whose rows are made in any order it is the list that knows what comes next.
    function step(by) {
        let above = parent;
        while (above && above.stepFrom === undefined)
            above = above.parent;
        return above ? above.stepFrom(control, by) : false;
    }

    implicitWidth: contentItem.implicitWidth + leftPadding + rightPadding
    implicitHeight: Math.max(small ? theme.s24 : theme.control, contentItem.implicitHeight + topPadding + bottomPadding)
    leftPadding: small ? theme.s8 : theme.s12
    rightPadding: small ? theme.s8 : theme.s12
    topPadding: small ? theme.hairline : theme.s4
    bottomPadding: small ? theme.hairline : theme.s4
    opacity: enabled && !busy ? 1 : theme.off
    hoverEnabled: true
    focusPolicy: Qt.TabFocus
    Accessible.role: Accessible.Button
    Accessible.name: text
    Keys.onReturnPressed: click()
    Keys.onTabPressed: (event) => event.accepted = step(1)
    Keys.onBacktabPressed: (event) => event.accepted = step(-1)
    Keys.onEnterPressed: click()

    contentItem: Row {
        spacing: control.small ? theme.s4 : theme.s8
        layoutDirection: control.trailing ? Qt.RightToLeft : Qt.LeftToRight

        Icon {
            anchors.verticalCenter: parent.verticalCenter
            visible: control.glyph.length > 0
            side: control.small || control.trailing ? theme.iconSmall : theme.icon
            name: control.glyph
            tint: control.tint
        }
        Words {
            anchors.verticalCenter: parent.verticalCenter
            width: control.most > 0 ? Math.min(implicitWidth, control.most) : implicitWidth
            text: control.text
            elide: Text.ElideRight
            color: control.tint
            font.pixelSize: control.small ? theme.fontSmall : theme.fontQuiet
            font.weight: theme.medium
            wrapMode: Text.NoWrap
        }
    }
    background: Rectangle {
        radius: theme.radius
        color: control.primary ? (control.down ? theme.accentPressed : control.hovered ? theme.accentHover : theme.accent)
                               : control.down ? theme.pressed : control.hovered ? theme.hover : control.flat ? "transparent" : theme.raised
        border.width: control.primary || control.flat ? 0 : theme.hairline
        border.color: theme.line

        FocusRing { shown: control.visualFocus }
    }
}
