import QtQuick

// The message was not sent because it looks like a secret: sending it all the same takes a second, deliberate step.
Rectangle {
    id: doubt

    readonly property Item first: anyway

    visible: now.secret
    height: visible ? column.height + 2 * theme.s12 : 0
    radius: theme.radiusCard
    color: theme.waitingGround
    border.width: theme.hairline
    border.color: theme.waiting
    Accessible.role: Accessible.AlertMessage
    Accessible.name: now.problem

    Icon {
        x: theme.s12
        y: theme.s12
        name: "key"
        tint: theme.waiting
    }
    Column {
        id: column
        x: theme.s12 + theme.icon + theme.s8
        y: theme.s12
        width: parent.width - x - theme.s12
        spacing: theme.s8

        Words {
            width: parent.width
            text: now.problem
            font.pixelSize: theme.fontQuiet
            horizontalAlignment: Text.AlignLeft
            wrapMode: Text.WrapAtWordBoundaryOrAnywhere
        }
        Btn {
            id: anyway
            text: "Send anyway"
            Accessible.description: "The message goes out as it stands, with what looks like a secret."
            onClicked: remuda.sendAnyway()
        }
    }
}
