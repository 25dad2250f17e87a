import QtQuick

// A state is always an icon, a word and a colour.
Row {
    id: mark

    property string icon
    property string word
    property string tone: "done"
    property bool wordless: false
    readonly property bool works: tone === "working"
    readonly property color tint: theme[tone]
    property int turn: 0

    spacing: theme.s4
    Accessible.role: Accessible.StaticText
    Accessible.name: word

    Item {
        anchors.verticalCenter: parent.verticalCenter
        width: theme.iconSmall
        height: theme.iconSmall

        Icon {
            visible: mark.works
            side: theme.iconSmall
            name: "ring"
            tint: theme.pressed
        }
        Icon {
            side: theme.iconSmall
            name: mark.icon
            tint: mark.tint
            rotation: mark.works ? mark.turn : 0
        }
    }
    Words {
        visible: !mark.wordless
        anchors.verticalCenter: parent.verticalCenter
        text: mark.word
        color: mark.tint
        font.pixelSize: theme.fontSmall
        font.weight: theme.medium
        wrapMode: Text.NoWrap
    }

    Timer {
        interval: theme.strokeStep
        repeat: true
        running: mark.works && mark.visible && theme.moving && mark.Window.window !== null && mark.Window.visibility !== Window.Minimized
        onTriggered: mark.turn += theme.strokeTurn
    }
}
