import QtQuick

// A sentence over the page, with an icon and a word.
Rectangle {
    id: strip

    property string icon
    property string word
    property string tone
    property string words
    property string way
    property bool closable: false
    signal followed
    signal closed

    height: column.height + 2 * theme.s8
    color: tone === "failed" ? theme.failedGround : tone === "waiting" ? theme.waitingGround : theme.sunken
    Accessible.role: Accessible.AlertMessage
    Accessible.name: word + ". " + words

    Icon {
        id: glyph
        x: theme.s16
        y: theme.s12
        name: strip.icon
        tint: theme[strip.tone]
    }
    Column {
        id: column
        anchors.left: glyph.right
        anchors.leftMargin: theme.s8
        anchors.right: buttons.left
        anchors.rightMargin: theme.s8
        y: theme.s8
        topPadding: theme.s4
        bottomPadding: theme.s4
        Words {
            width: parent.width
            text: strip.words
            font.pixelSize: theme.fontQuiet
        }
    }
    Row {
        id: buttons
        anchors.right: parent.right
        anchors.rightMargin: theme.s8
        anchors.verticalCenter: parent.verticalCenter
        Btn {
            visible: strip.way.length > 0
            flat: true
            text: strip.way
            onClicked: strip.followed()
        }
        IconBtn {
            visible: strip.closable
            glyph: "close"
            says: "Close this note"
            onClicked: strip.closed()
        }
    }
}
