import QtQuick

// How the newest run stands, unless it is done and there is nothing to do about it.
Item {
    id: root

    readonly property bool offers: now.canAskAgain || now.canLookAgain
    readonly property var next: now.canLookAgain ? actionTable["look-again"] : actionTable.again
    readonly property bool shown: now.runVisible && (!now.runTold || offers)
    readonly property bool marked: now.runState !== "done" && !now.runTold
    readonly property bool told: !marked && now.runSentence.length === 0

    visible: shown
    height: Math.max(words.height, offers ? again.height : 0)

    Row {
        id: words

        visible: !root.told
        anchors.verticalCenter: parent.verticalCenter
        width: root.offers ? parent.width - again.width - theme.s12 : parent.width
        spacing: theme.s8

        StateMark {
            id: mark
            anchors.verticalCenter: parent.verticalCenter
            visible: root.marked
            icon: now.runIcon
            word: now.runWord
            tone: now.runTone
        }
        Quiet {
            anchors.verticalCenter: parent.verticalCenter
            width: Math.max(0, parent.width - (root.marked ? mark.width + theme.s8 : 0))
            text: now.runSentence
            visible: text.length > 0
        }
    }
    Btn {
        id: again
        x: root.told ? 0 : parent.width - width
        anchors.verticalCenter: parent.verticalCenter
        visible: root.offers
        glyph: root.next.icon
        text: root.next.label
        Accessible.description: root.next.explains
        onClicked: remuda.act(root.next.name)
    }
}
