import QtQuick
import QtQuick.Templates as T
import Qt.labs.qmlmodels

Item {
    id: root

    property bool pinned: true
    property bool fresh: false
    readonly property bool scrolled: list.contentY > list.originY + 1

    function nearEnd() {
        return list.contentHeight <= list.height || list.contentY + list.height >= list.originY + list.contentHeight - theme.s24;
    }
    function moved() {
        pinned = nearEnd();
        if (pinned)
            fresh = false;
    }
    // Rows that came by unfolding are nothing new.
    function turned() {
        fresh = false;
        moved();
    }
    function toEnd() {
        list.forceLayout();
        list.positionViewAtEnd();
        pinned = true;
        fresh = false;
        look.schedule();
    }
    // Follow the end, unless the reader's hand is on the view.
    function follow() {
        if (pinned && !list.moving && !bar.pressed) {
            list.forceLayout();
            list.positionViewAtEnd();
        }
    }
    function grown() {
        if (list.originY + list.contentHeight - list.height - list.contentY > 1)
            follow();
        look.schedule();
    }
    // Rows are replaced by others: remember what the reader sees at the top, and keep it there.
    function hold() {
        anchor = null;
        const row = pinned ? -1 : list.indexAt(list.width / 2, list.contentY + 1);
        const item = row >= 0 ? list.itemAtIndex(row) : null;
        if (item)
            anchor = { place: remuda.placeOf(row), inside: list.contentY - item.y };
    }
    function release() {
        if (pinned) {
            follow();
        } else if (anchor) {
            const row = remuda.rowOf(anchor.place[0], anchor.place[1]);
            list.forceLayout();
            let item = list.itemAtIndex(row);
            if (!item) {
                list.positionViewAtIndex(row, ListView.Beginning);
                item = list.itemAtIndex(row);
            }
            if (item && Math.abs(list.contentY - item.y - anchor.inside) > 1)
                list.contentY = item.y + anchor.inside;
        }
        anchor = null;
    }

    function reveal(item) {
        const top = item.mapToItem(list.contentItem, 0, 0).y - theme.s16;
        const bottom = top + item.height + theme.s32;
        if (top >= list.contentY && bottom <= list.contentY + list.height)
            return;
        const wanted = top < list.contentY ? top : bottom - list.height;
        list.contentY = Math.max(list.originY, Math.min(list.originY + list.contentHeight - list.height, wanted));
        moved();
        look.schedule();
    }

    property var anchor: null
    property Item inner: null

    ListView {
        id: list
        objectName: "transcript"

        readonly property real columnWidth: Math.max(0, Math.min(theme.measure, width - 2 * (root.width < theme.breakDrawer ? theme.s16 : theme.s32)))
        readonly property real columnLeft: (width - columnWidth) / 2

        // What is unfolded grows downwards, and its head stays in sight: the view does not follow the end then.
        function turn(row) {
            const place = remuda.placeOf(row);
            root.pinned = false;
            remuda.toggle(row);
            forceLayout();
            const head = remuda.rowOf(place[0], 0);
            const item = itemAtIndex(head);
            if (!item || item.y < contentY)
                positionViewAtIndex(head, ListView.Contain);
            Qt.callLater(root.turned);
            look.schedule();
        }

        anchors.fill: parent
        model: transcriptModel
        clip: true
        reuseItems: true
        cacheBuffer: theme.ahead
        boundsBehavior: Flickable.StopAtBounds
        activeFocusOnTab: true
        keyNavigationEnabled: false
        currentIndex: -1
        highlightFollowsCurrentItem: false
        Accessible.role: Accessible.List
        Accessible.name: "Conversation"

        onContentHeightChanged: Qt.callLater(root.grown)
        onHeightChanged: Qt.callLater(root.grown)
        onContentYChanged: {
            if (moving || bar.pressed)
                root.moved();
            look.schedule();
        }
        onMovementEnded: {
            root.moved();
            root.follow();
        }
        onCountChanged: if (!root.pinned) root.fresh = true
        Keys.onPressed: (event) => {
            const page = height - theme.s48;
            const steps = {};
            steps[Qt.Key_Up] = -theme.s48;
            steps[Qt.Key_Down] = theme.s48;
            steps[Qt.Key_PageUp] = -page;
            steps[Qt.Key_PageDown] = page;
            if (event.key in steps) {
                contentY = Math.max(originY, Math.min(originY + contentHeight - height, contentY + steps[event.key]));
            } else if (event.key === Qt.Key_Home) {
                positionViewAtBeginning();
            } else if (event.key === Qt.Key_End) {
                positionViewAtEnd();
            } else {
                return;
            }
            event.accepted = true;
            root.moved();
        }

        delegate: DelegateChooser {
            role: "kind"
            DelegateChoice { roleValue: "text"; RowText {} }
            DelegateChoice { roleValue: "user"; RowUser {} }
            DelegateChoice { roleValue: "code"; RowCode {} }
            DelegateChoice { roleValue: "table"; RowTable {} }
            DelegateChoice { roleValue: "rule"; RowRule {} }
            DelegateChoice { roleValue: "reasoning"; RowReasoning {} }
            DelegateChoice { roleValue: "notice"; RowNotice {} }
            DelegateChoice { roleValue: "foot"; RowFoot {} }
            DelegateChoice { roleValue: "more"; RowMore {} }
            DelegateChoice { roleValue: "note"; RowNote {} }
            DelegateChoice { roleValue: "plan"; RowPlan {} }
            DelegateChoice { roleValue: "command"; RowCommand {} }
            DelegateChoice { roleValue: "tool"; RowTool {} }
            DelegateChoice { roleValue: "change"; RowChange {} }
            DelegateChoice { roleValue: "output"; RowOutput {} }
            DelegateChoice { roleValue: "diff"; RowOutput {} }
            DelegateChoice { roleValue: "label"; RowLabel {} }
            DelegateChoice { roleValue: "unloaded"; RowUnloaded {} }
        }

        footer: Item {
            width: list.width
            height: (run.shown ? run.height + theme.s16 : 0) + theme.s32

            RunLine {
                id: run
                x: list.columnLeft
                y: theme.s16
                width: list.columnWidth
            }
        }

        T.ScrollBar.vertical: Bar { id: bar }
    }

    // What gets the focus by keys comes into sight; who comes back finds the list, not the row that was left.
    Connections {
        target: root.visible ? list.Window.window : null
        function onActiveFocusItemChanged() {
            const item = list.Window.activeFocusItem;
            let above = item;
            while (above && above !== list)
                above = above.parent;
            if (!above) {
                if (root.inner)
                    root.inner.focus = false;
                root.inner = null;
            } else if (item !== list) {
                root.inner = item;
                if (item.visualFocus === true)
                    root.reveal(item);
            }
        }
    }
    FocusRing {
        shown: list.activeFocus && root.inner === null
        anchors.margins: theme.focusLine
    }

    Timer {
        id: look

        function schedule() {
            if (!running)
                start();
        }

        interval: 0
        onTriggered: {
            const x = list.width / 2;
            const first = list.indexAt(x, Math.max(list.originY, list.contentY) + 1);
            const last = list.indexAt(x, list.contentY + list.height - 1);
            if (first >= 0 || last >= 0)
                remuda.look(first >= 0 ? first : last, last >= 0 ? last : first);
        }
    }

    Connections {
        target: remuda
        function onFollowed() { root.toEnd(); }
        function onFlushed() {
            if (root.visible)
                root.follow();
        }
        function onReplacing() { root.hold(); }
        function onReplaced() { root.release(); }
        function onAsked(name) {
            if (name === "below")
                root.toEnd();
        }
    }

    Btn {
        id: below
        anchors.horizontalCenter: parent.horizontalCenter
        anchors.bottom: parent.bottom
        anchors.bottomMargin: theme.s8
        visible: !root.pinned && list.count > 0
        glyph: "below"
        text: root.fresh || now.busy ? "New below" : "To the newest"
        onClicked: root.toEnd()
    }
}
