import QtQuick
import QtQuick.Templates as T

Item {
    id: root

    readonly property bool drawer: width < theme.breakDrawer
    readonly property bool narrow: width < theme.breakRail
    property bool folded: false
    readonly property bool rail: !drawer && (narrow || folded)
    property bool open: false
    property bool byKey: false

    function sidebar() {
        if (narrow)
            open = !open;
        else
            folded = !folded;
    }
    function filter() {
        if (narrow)
            open = true;
        else
            folded = false;
        (narrow ? over : side).filterNow();
    }

    // The picker is made when it is first asked for: the start does not wait for it.
    function pick() {
        if (picker.item)
            picker.item.open();
        else
            picker.active = true;
    }

    focus: true
    onNarrowChanged: open = false

    Sidebar {
        id: side
        visible: !root.drawer
        width: root.drawer ? 0 : root.rail ? theme.rail : theme.sidebar
        height: parent.height
        rail: root.rail
        onOpened: root.narrow ? root.open = true : root.folded = false
    }

    Item {
        id: page
        anchors.left: side.right
        anchors.right: parent.right
        height: parent.height

        Column {
            id: strips
            width: parent.width

            Strip {
                width: parent.width
                visible: now.wallLevel === "none" || now.wallLevel === "partly"
                tone: now.wallLevel === "none" ? "failed" : "waiting"
                icon: now.wallLevel === "none" ? "failed" : "warning"
                word: now.wallLevel === "none" ? "Not isolated" : "Partly isolated"
                words: now.wallSentence
                way: now.page === "selftest" ? "" : "Show the test"
                onFollowed: remuda.act("selftest")
            }
        }
        Header {
            id: header
            anchors.top: strips.bottom
            width: parent.width
            opener: root.drawer
            drawn: now.page === "conversation" && talk.visible && transcript.scrolled
            onSidebarWanted: root.open = true
            onPickerWanted: root.pick()

            Loader {
                id: picker
                active: false
                x: Math.max(theme.s8, Math.min(theme.s16, header.width - theme.picker - theme.s8))
                y: header.height - theme.s4
                width: Math.min(theme.picker, header.width - 2 * theme.s8)
                height: root.height - header.height - strips.height - theme.s24
                source: "Choosing.qml"
                onLoaded: item.open()
            }
        }
        Column {
            id: notices
            anchors.top: header.bottom
            width: parent.width
            Repeater {
                model: noticesModel
                Strip {
                    required property var row
                    width: notices.width
                    tone: row.tone
                    icon: row.icon
                    word: row.word
                    words: row.words
                    closable: !row.sticky
                    onClosed: remuda.dismiss(row.id)
                }
            }
        }
        Item {
            id: content
            anchors.top: notices.bottom
            anchors.bottom: parent.bottom
            width: parent.width

            Loader {
                anchors.fill: parent
                active: now.ready && now.page === "conversation" && now.firstRun
                source: "FirstRun.qml"
            }
            Loader {
                anchors.fill: parent
                active: now.page === "selftest"
                source: "SelfTest.qml"
            }
            Loader {
                anchors.fill: parent
                active: now.page === "settings"
                source: "Settings.qml"
                onLoaded: {
                    const before = Window.activeFocusItem;
                    item.take(root.byKey || (before && before.visualFocus === true) ? Qt.TabFocusReason : Qt.OtherFocusReason);
                }
            }
            Item {
                id: talk
                anchors.fill: parent
                visible: now.ready && now.page === "conversation" && !now.firstRun
                onVisibleChanged: if (visible) composer.take()

                Transcript {
                    id: transcript
                    anchors.top: parent.top
                    anchors.bottom: composer.top
                    anchors.bottomMargin: theme.s8
                    width: parent.width
                    visible: !now.empty
                    following: composer.first
                }
                EmptyState {
                    anchors.top: parent.top
                    anchors.bottom: composer.top
                    width: parent.width
                    visible: now.empty
                    composer: composer
                }
                Composer {
                    id: composer
                    anchors.bottom: parent.bottom
                    anchors.bottomMargin: theme.s12
                    anchors.horizontalCenter: parent.horizontalCenter
                    width: Math.max(0, Math.min(theme.measure, parent.width - 2 * (page.width < theme.breakDrawer ? theme.s12 : theme.s32)))
                    most: root.height * theme.composerMost
                }
            }
        }
    }

    Rectangle {
        anchors.fill: parent
        color: theme.scrim
        visible: root.open
        TapHandler { onTapped: root.open = false }
        MouseArea {
            anchors.fill: parent
            hoverEnabled: true
            onClicked: root.open = false
            onWheel: (wheel) => wheel.accepted = true
        }
    }
    Sidebar {
        id: over
        visible: root.open
        width: Math.min(theme.sidebar, parent.width - theme.s48)
        height: parent.height
        onChosen: root.open = false
        Keys.onEscapePressed: root.open = false
    }

    Repeater {
        model: Object.keys(actionTable).filter((name) => actionTable[name].key.length > 0)
        Item {
            id: deed
            required property string modelData
            Shortcut {
                sequence: actionTable[deed.modelData].key
                context: Qt.WindowShortcut
                onActivated: {
                    root.byKey = true;
                    remuda.act(deed.modelData);
                    root.byKey = false;
                }
            }
        }
    }
    Repeater {
        model: conversationKeys
        Item {
            id: place
            required property string modelData
            required property int index
            Shortcut {
                sequence: place.modelData
                context: Qt.WindowShortcut
                onActivated: remuda.selectPlace(place.index)
            }
        }
    }
    Binding {
        target: root.Window.window
        when: root.Window.window !== null
        property: "title"
        value: now.otherProfile.length > 0 ? "Remuda · " + now.otherProfile : "Remuda"
    }
    Connections {
        target: root.Window.window
        function onClosing() { remuda.windowClosed(); }
    }
    Connections {
        target: remuda
        function onAsked(name) {
            if (name === "sidebar")
                root.sidebar();
            else if (name === "filter")
                root.filter();
            else if (name === "pick") {
                remuda.leave();
                root.pick();
            }
            else if (name === "raise") {
                root.Window.window.raise();
                root.Window.window.requestActivate();
            }
        }
        function onFollowed() {
            if (talk.visible)
                composer.take();
        }
    }
}
