import QtQuick
import QtQuick.Templates as T

Item {
    id: root

    property bool drawn: false
    property bool opener: false
    signal sidebarWanted
    signal pickerWanted

    readonly property bool elsewhere: now.page !== "conversation"

    implicitHeight: Math.max(theme.header, told.height + 2 * theme.s8)

    IconBtn {
        id: open
        visible: root.opener
        x: theme.s12
        anchors.verticalCenter: parent.verticalCenter
        glyph: "menu"
        says: actionTable.sidebar.label
        key: actionTable.sidebar.key
        onClicked: root.sidebarWanted()
    }
    Column {
        id: told
        anchors.left: parent.left
        anchors.leftMargin: root.opener ? open.x + open.width + theme.s4 : theme.s16
        anchors.right: waits.visible ? waits.left : menuButton.left
        anchors.rightMargin: theme.s8
        anchors.verticalCenter: parent.verticalCenter

        Words {
            x: theme.s8
            width: parent.width - theme.s8
            visible: root.elsewhere || !now.firstRun
            text: now.page === "selftest" ? "Isolation self-test" : now.page === "settings" ? "Settings" : now.title
            font.weight: theme.strong
            horizontalAlignment: Text.AlignLeft
            elide: Text.ElideRight
            wrapMode: Text.NoWrap
            Accessible.role: Accessible.Heading
            Accessible.name: text
        }
        Quiet {
            x: theme.s8
            width: parent.width - theme.s8
            visible: now.page === "settings" && now.profile.length > 0
            text: "Profile " + now.profile
            horizontalAlignment: Text.AlignLeft
            elide: Text.ElideRight
            wrapMode: Text.NoWrap
        }
        T.AbstractButton {
            id: sentence
            visible: now.page === "conversation" && now.sentence.length > 0
            width: Math.min(parent.width, implicitWidth)
            implicitWidth: words.implicitWidth + theme.iconSmall + theme.s4 + 2 * theme.s8
            implicitHeight: words.implicitHeight + theme.s4
            hoverEnabled: true
            focusPolicy: Qt.TabFocus
            Accessible.role: Accessible.ButtonMenu
            Accessible.name: now.sentence
            Accessible.description: actionTable.pick.label
            Keys.onReturnPressed: click()
            onClicked: root.pickerWanted()

            Quiet {
                id: words
                x: theme.s8
                anchors.verticalCenter: parent.verticalCenter
                width: Math.min(implicitWidth, sentence.width - theme.iconSmall - theme.s4 - 2 * theme.s8)
                text: now.sentenceShort
                horizontalAlignment: Text.AlignLeft
                elide: Text.ElideRight
                maximumLineCount: theme.linesMost
                color: sentence.hovered ? theme.text : theme.quiet
            }
            Icon {
                anchors.left: words.right
                anchors.leftMargin: theme.s4
                anchors.verticalCenter: parent.verticalCenter
                side: theme.iconSmall
                name: "down"
                tint: theme.quiet
            }
            background: Rectangle {
                radius: theme.radius
                color: sentence.hovered ? theme.hover : "transparent"
                FocusRing { shown: sentence.visualFocus }
            }
        }
    }
    Btn {
        id: waits
        anchors.right: menuButton.left
        anchors.rightMargin: theme.s8
        anchors.verticalCenter: parent.verticalCenter
        visible: now.waiting > 0 && !root.elsewhere
        small: true
        glyph: "waiting"
        tint: theme.waiting
        busy: now.asked
        text: root.opener ? now.waiting : now.waiting === 1 ? "1 waits for you" : now.waiting + " wait for you"
        Accessible.name: (now.waiting === 1 ? "1 call waits for you. " : now.waiting + " calls wait for you. ") + actionTable.review.label
        Accessible.description: actionTable.review.explains
        onClicked: if (!now.asked) remuda.act("review")
    }
    IconBtn {
        id: menuButton
        anchors.right: parent.right
        anchors.rightMargin: theme.s12
        anchors.verticalCenter: parent.verticalCenter
        glyph: root.elsewhere ? "close" : "more"
        says: root.elsewhere ? "Back to the conversation" : "What can be done with this conversation"
        visible: root.elsewhere || now.conversation.length > 0
        onClicked: root.elsewhere ? remuda.leave()
                                  : menu.show(menuButton, ["pick", "review", "stop", "again", "look-again", "let-run", "detach", "delete"].map((name) => actionTable[name])
                                                          .filter((deed) => deed.needs.length === 0 || !!now[deed.needs]), "")

        Menu {
            id: menu
            onPicked: (name) => remuda.act(name)
        }
    }
    Rectangle {
        anchors.bottom: parent.bottom
        width: parent.width
        height: theme.hairline
        color: theme.line
        visible: root.drawn
    }
}
