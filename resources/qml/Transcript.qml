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

    // What keys can reach in a row, in reading order. What stands below the last row counts as one more.
    function stops(row) {
        const found = [];
        const look = (item) => {
            for (const kid of item.children) {
                if (!kid.visible || !kid.enabled)
                    continue;
                if (kid.activeFocusOnTab)
                    found.push(kid);
                look(kid);
            }
        };
        const item = at(row);
        if (item)
            look(item);
        return found;
    }
    function at(row) {
        return row === list.count ? list.footerItem : list.itemAtIndex(row);
    }
    function rowOf(item) {
        while (item && item.parent !== list.contentItem)
            item = item.parent;
        if (item && item === list.footerItem)
            return list.count;
        return item && item.index !== undefined && list.itemAtIndex(item.index) === item ? item.index : -1;
    }
    function inside(item) {
        while (item && item !== list)
            item = item.parent;
        return item === list;
    }
    // The next stop after an item, or before it. The list makes its rows in the order in which they came into sight,
    // and keeps some that are out of use: the order of the keys would be theirs.
    function beside(item, by) {
        let row = rowOf(item);
        const here = row < 0 ? [] : stops(row);
        const next = here.indexOf(item) + by;
        if (here.indexOf(item) >= 0 && next >= 0 && next < here.length)
            return here[next];
        const end = row + by * theme.rowsAhead;
        for (row = row < 0 ? -1 : row + by; row >= 0 && row <= list.count && row !== end; row += by) {
            if (!at(row)) {
                list.positionViewAtIndex(row, by > 0 ? ListView.Beginning : ListView.End);
                list.forceLayout();
                moved();
            }
            const there = stops(row);
            if (there.length > 0)
                return by > 0 ? there[0] : there[there.length - 1];
        }
        return null;
    }
    function firstStop() {
        let row = list.indexAt(list.width / 2, Math.max(list.originY, list.contentY) + theme.s32);
        for (row = Math.max(0, row); row <= list.count && at(row); ++row) {
            const there = stops(row);
            if (there.length > 0)
                return there[0];
        }
        return null;
    }
    function lastStop() {
        const foot = stops(list.count);
        if (foot.length > 0 && list.footerItem.y < list.contentY + list.height)
            return foot[foot.length - 1];
        let row = list.indexAt(list.width / 2, list.contentY + list.height - 1);
        for (row = row < 0 ? list.count - 1 : row; row >= 0 && list.itemAtIndex(row); --row) {
            const there = stops(row);
            if (there.length > 0)
                return there[there.length - 1];
        }
        return null;
    }
    function lead(from, to) {
        steering = true;
        if (from)
            from.focus = false;
        inner = to !== list && inside(to) ? to : null;
        to.forceActiveFocus(Qt.TabFocusReason);
        steering = false;
        if (inner)
            reveal(inner);
    }
    // Keys that come from below land on whatever row was made last: lead them to the last one in sight.
    function focused(item) {
        const before = inner;
        inner = item && item !== list && inside(item) ? item : null;
        if (before && before !== inner)
            before.focus = false;
        const wanted = inner && !before && inner.visualFocus === true ? lastStop() : null;
        if (wanted && wanted !== inner)
            lead(inner, wanted);
        else if (inner && inner.visualFocus === true)
            reveal(inner);
    }

    property Item following: null
    property var anchor: null
    property Item inner: null
    property bool steering: false

    ListView {
        id: list
        objectName: "transcript"

        readonly property real columnWidth: Math.max(0, Math.min(theme.measure, width - 2 * (root.width < theme.breakDrawer ? theme.s16 : theme.s32)))
        readonly property real columnLeft: (width - columnWidth) / 2

        // A stop of a row asks where the keys lead from it.
        function stepFrom(item, by) {
            const wanted = root.beside(item, by) || (by > 0 ? root.following : list);
            if (!wanted)
                return false;
            root.lead(item, wanted);
            return true;
        }

        Keys.onTabPressed: (event) => {
            const wanted = root.firstStop() || root.following;
            if (wanted)
                root.lead(null, wanted);
            event.accepted = wanted !== null;
        }
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
            if (root.steering)
                return;
            root.focused(list.Window.activeFocusItem);
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

    // What the list was still making of the old rows is given up while they are there.
    Connections {
        target: transcriptModel
        function onModelAboutToBeReset() { list.model = null; }
        function onModelReset() { list.model = transcriptModel; }
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
