import QtQuick

// How the newest run stands, unless it is done and there is nothing to do about it.
Item {
    id: root

    readonly property bool shown: now.runVisible && (!now.runTold || now.canAskAgain)
    readonly property bool marked: now.runState !== "done" && !now.runTold
    readonly property bool told: !marked && now.runSentence.length === 0

    visible: shown
    height: Math.max(words.height, now.canAskAgain ? again.height : review.visible ? review.height : 0)

    Row {
        id: words

        visible: !root.told
        anchors.verticalCenter: parent.verticalCenter
        width: parent.width - (now.canAskAgain ? again.width + theme.s12 : review.visible ? review.width + theme.s12 : 0)
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
        id: review
        x: parent.width - width
        anchors.verticalCenter: parent.verticalCenter
        visible: now.runState === "waiting" && now.reviewable.length > 0 && !now.canAskAgain
        busy: now.asked
        text: actionTable.review.label
        Accessible.name: text + " the call that waits"
        Accessible.description: actionTable.review.explains
        onClicked: if (!now.asked) remuda.act("review")
    }
    Btn {
        id: again
        x: root.told ? 0 : parent.width - width
        anchors.verticalCenter: parent.verticalCenter
        visible: now.canAskAgain
        glyph: actionTable.again.icon
        text: actionTable.again.label
        onClicked: remuda.act("again")
    }
}
