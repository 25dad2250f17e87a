import QtQuick

// How the newest run stands, unless it is done and there is nothing to do about it.
Item {
    visible: now.runVisible
    height: Math.max(words.height, again.visible ? again.height : 0)

    Row {
        id: words
        anchors.verticalCenter: parent.verticalCenter
        width: again.visible ? again.x - theme.s12 : parent.width
        spacing: theme.s8

        StateMark {
            id: mark
            visible: now.runState !== "done"
            icon: now.runIcon
            word: now.runWord
            tone: now.runTone
        }
        Quiet {
            width: Math.max(0, parent.width - (mark.visible ? mark.width + theme.s8 : 0))
            text: now.runSentence
            visible: text.length > 0
        }
    }
    Btn {
        id: again
        anchors.right: parent.right
        anchors.verticalCenter: parent.verticalCenter
        visible: now.canAskAgain
        glyph: actionTable.again.icon
        text: actionTable.again.label
        onClicked: remuda.act("again")
    }
}
