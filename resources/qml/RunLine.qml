import QtQuick

// How the newest run stands, unless it is done and there is nothing to do about it.
Item {
    visible: now.runVisible && (!now.runTold || now.canAskAgain)
    height: Math.max(words.height, again.visible ? again.height : 0)

    Row {
        id: words

        readonly property bool told: !mark.visible && now.runSentence.length === 0

        visible: !told
        anchors.verticalCenter: parent.verticalCenter
        width: again.visible ? parent.width - again.width - theme.s12 : parent.width
        spacing: theme.s8

        StateMark {
            id: mark
            anchors.verticalCenter: parent.verticalCenter
            visible: now.runState !== "done" && !now.runTold
            icon: now.runIcon
            word: now.runWord
            tone: now.runTone
        }
        Quiet {
            anchors.verticalCenter: parent.verticalCenter
            width: Math.max(0, parent.width - (mark.visible ? mark.width + theme.s8 : 0))
            text: now.runSentence
            visible: text.length > 0
        }
    }
    Btn {
        id: again
        x: words.told ? 0 : parent.width - width
        anchors.verticalCenter: parent.verticalCenter
        visible: now.canAskAgain
        glyph: actionTable.again.icon
        text: actionTable.again.label
        onClicked: remuda.act("again")
    }
}
