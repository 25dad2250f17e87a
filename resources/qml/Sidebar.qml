import QtQuick
import QtQuick.Templates as T

Rectangle {
    id: root

    property bool rail: false
    signal chosen
    signal opened

    function filterNow() { filter.forceActiveFocus(Qt.TabFocusReason); }

    onVisibleChanged: if (visible) filter.text = now.filter
    color: theme.sunken
    Accessible.role: Accessible.Grouping
    Accessible.name: "Conversations"

    Item {
        id: head
        width: parent.width
        height: theme.header

        IconBtn {
            visible: root.rail
            anchors.centerIn: parent
            glyph: "menu"
            says: actionTable.sidebar.label
            key: actionTable.sidebar.key
            onClicked: root.opened()
        }
        Icon {
            id: mark
            visible: !root.rail
            x: theme.s16
            anchors.verticalCenter: parent.verticalCenter
            side: theme.mark
            name: "mark"
            tint: theme.accent
        }
        Words {
            id: brand
            visible: !root.rail
            anchors.left: mark.right
            anchors.leftMargin: theme.s8
            anchors.verticalCenter: parent.verticalCenter
            text: "Remuda"
            font.weight: theme.strong
            wrapMode: Text.NoWrap
        }
        Name {
            visible: !root.rail
            anchors.left: brand.right
            anchors.leftMargin: theme.s8
            anchors.right: parent.right
            anchors.rightMargin: theme.s8 + theme.control
            anchors.baseline: brand.baseline
            text: now.otherProfile
            color: theme.quiet
            font.pixelSize: theme.fontQuiet
        }
        IconBtn {
            visible: !root.rail
            anchors.right: parent.right
            anchors.rightMargin: theme.s8
            anchors.verticalCenter: parent.verticalCenter
            glyph: "sidebar"
            says: actionTable.sidebar.label
            key: actionTable.sidebar.key
            onClicked: remuda.act("sidebar")
        }
    }
    Column {
        id: tools
        anchors.top: head.bottom
        x: theme.s12
        width: parent.width - 2 * theme.s12
        spacing: theme.s8

        Btn {
            visible: !root.rail
            width: parent.width
            glyph: actionTable["new"].icon
            text: actionTable["new"].label
            onClicked: {
                remuda.act("new");
                root.chosen();
            }
        }
        IconBtn {
            visible: root.rail
            glyph: actionTable["new"].icon
            says: actionTable["new"].label
            key: actionTable["new"].key
            onClicked: remuda.act("new")
        }
        IconBtn {
            visible: root.rail
            glyph: "search"
            says: actionTable.filter.label
            key: actionTable.filter.key
            onClicked: remuda.act("filter")
        }
        Field {
            id: filter
            visible: !root.rail
            width: parent.width
            glyph: "search"
            says: "Filter"
            Accessible.name: actionTable.filter.label
            onTextChanged: remuda.filter(text)
            Keys.onEscapePressed: text = ""
            Keys.onDownPressed: list.forceActiveFocus(Qt.TabFocusReason)
        }
    }
    ListView {
        id: list

        function look() {
            const first = indexAt(1, contentY + 1), last = indexAt(1, contentY + height - 1);
            if (count > 0)
                remuda.lookAtConversations(Math.max(0, first), last >= 0 ? last : Math.min(count - 1, Math.max(0, first) + height / theme.control));
        }

        visible: !root.rail
        anchors.top: tools.bottom
        anchors.topMargin: theme.s8
        anchors.bottom: foot.top
        width: parent.width
        clip: true
        model: conversationsModel
        reuseItems: true
        boundsBehavior: Flickable.StopAtBounds
        activeFocusOnTab: true
        currentIndex: -1
        highlightMoveDuration: 0
        Accessible.role: Accessible.List
        Accessible.name: "Conversations"
        onContentYChanged: Qt.callLater(look)
        onCountChanged: Qt.callLater(look)
        onHeightChanged: Qt.callLater(look)
        onActiveFocusChanged: if (activeFocus && currentIndex < 0) currentIndex = 0
        Keys.onReturnPressed: if (currentItem) currentItem.open()
        Keys.onSpacePressed: if (currentItem) currentItem.open()
        T.ScrollBar.vertical: Bar {}
        delegate: ConversationLine {
            onOpened: root.chosen()
        }

        Quiet {
            anchors.top: parent.top
            anchors.topMargin: theme.s16
            x: theme.s16
            width: parent.width - 2 * theme.s16
            visible: now.listingKnown && now.conversations === 0
            text: now.filter.length > 0 ? "No title holds these letters. Esc clears the filter." : "Conversations will be listed here."
        }
    }
    Item {
        id: foot
        anchors.bottom: parent.bottom
        width: parent.width
        height: root.rail ? narrow.height + theme.s16 : theme.header

        Column {
            id: narrow
            visible: root.rail
            anchors.horizontalCenter: parent.horizontalCenter
            spacing: theme.s4
            IconBtn {
                glyph: actionTable.settings.icon
                says: actionTable.settings.label
                key: actionTable.settings.key
                checked: now.page === "settings"
                enabled: now.ready
                onClicked: remuda.act("settings")
            }
            IconBtn {
                glyph: "shield"
                tint: safety.tint
                says: safety.words + ". " + actionTable.selftest.label
                key: actionTable.selftest.key
                onClicked: remuda.act("selftest")
            }
        }
        Btn {
            id: safety
            readonly property string words: now.wallLevel === "walled" ? "Isolated" : now.wallLevel === "partly" ? "Partly isolated"
                                          : now.wallLevel === "none" ? "Not isolated" : "Isolation"
            visible: !root.rail
            x: theme.s8
            anchors.verticalCenter: parent.verticalCenter
            flat: true
            leftPadding: theme.s8
            glyph: "shield"
            text: words
            tint: now.wallLevel === "none" ? theme.failed : now.wallLevel === "partly" ? theme.waiting : theme.quiet
            Accessible.name: words + ". " + actionTable.selftest.label
            onClicked: {
                remuda.act("selftest");
                root.chosen();
            }
        }
        Btn {
            visible: !root.rail
            anchors.right: parent.right
            anchors.rightMargin: theme.s8
            anchors.verticalCenter: parent.verticalCenter
            flat: true
            leftPadding: theme.s8
            rightPadding: theme.s8
            glyph: actionTable.settings.icon
            text: actionTable.settings.label
            tint: now.page === "settings" ? theme.accent : theme.quiet
            enabled: now.ready
            onClicked: {
                remuda.act("settings");
                root.chosen();
            }
        }
    }
}
