import QtQuick
import QtQuick.Templates as T

// What waits to be said, above the composer: said in this order, changed and moved by keys or buttons.
Rectangle {
    id: root

    property real most: 0
    readonly property Item first: list.currentItem || list
    readonly property var order: now.queueIds
    signal ended

    visible: order.length > 0
    height: visible ? list.y + list.height + theme.s8 : 0
    radius: theme.radiusCard
    color: theme.sunken
    border.width: theme.hairline
    border.color: now.queueHeld ? theme.waiting : theme.line

    // The list follows the message, not its place.
    onOrderChanged: Qt.callLater(list.follow)

    Icon {
        id: glyph
        visible: now.queueHeld
        x: theme.s16
        y: theme.s8 + (word.height - height) / 2
        side: theme.iconSmall
        name: "waiting"
        tint: theme.waiting
    }
    Words {
        id: word
        x: glyph.visible ? glyph.x + glyph.width + theme.s4 : theme.s16
        y: theme.s8
        text: now.queueWord
        color: now.queueHeld ? theme.waiting : theme.text
        font.pixelSize: theme.fontSmall
        font.weight: theme.strong
        wrapMode: Text.NoWrap
        Accessible.role: Accessible.StaticText
        Accessible.name: text
    }
    Quiet {
        anchors.right: parent.right
        anchors.rightMargin: theme.s16
        y: theme.s8
        visible: list.activeFocus && list.editing.length === 0 && width + word.width <= parent.width - theme.s48 - theme.s24
        text: "Enter edits · Alt+↑↓ moves · Ctrl+Enter sends · Delete removes"
        font.pixelSize: theme.fontSmall
        wrapMode: Text.NoWrap
    }
    ListView {
        id: list

        property string editing
        property string edited
        property string followed
        property string deed

        function carry(name, row, byButton) {
            followed = row.id;
            deed = byButton ? name : "";
            if (name === "queue-send" && row.sendable)
                queue.send(row.id);
            else if (name === "queue-edit" && row.editable)
                edit(row);
            else if (name === "queue-up" && row.earlier)
                queue.move(row.id, -1);
            else if (name === "queue-down" && row.later)
                queue.move(row.id, 1);
            else if (name === "queue-remove")
                queue.remove(row.id);
        }
        function edit(row) {
            edited = row.raw;
            editing = row.id;
        }
        function save() {
            const id = editing;
            leaveEdit();
            queue.edit(id, edited);
        }
        function leaveEdit() {
            editing = "";
            go(0);
        }
        function follow() {
            const had = inside();
            if (editing.length > 0 && root.order.indexOf(editing) < 0) {
                editing = "";
                queue.keep(edited);
                root.ended();
                return;
            }
            if (root.order.length === 0) {
                if (had)
                    root.ended();
                return;
            }
            if (editing.length > 0)
                return;
            const found = root.order.indexOf(followed);
            const place = found >= 0 ? found : Math.max(0, Math.min(currentIndex, count - 1));
            if (!had) {
                choose(place, root.order[place]);
                return;
            }
            const to = itemAt(place);
            if (to && deed.length > 0 && found >= 0)
                to.takeTool(deed);
            else if (to)
                to.take(Qt.TabFocusReason);
            deed = "";
        }
        // Whatever happens to the order, it is this message that is looked at.
        function choose(place, id) {
            followed = id;
            currentIndex = place;
        }
        function inside() {
            let item = Window.activeFocusItem;
            while (item && item !== list)
                item = item.parent;
            return item === list;
        }
        // The row there, made if it is out of sight.
        function itemAt(place) {
            positionViewAtIndex(place, ListView.Contain);
            forceLayout();
            return itemAtIndex(place);
        }
        function go(by) {
            const item = itemAt(Math.max(0, Math.min(count - 1, currentIndex + by)));
            if (item)
                item.take(Qt.TabFocusReason);
        }

        x: theme.s8
        y: word.y + word.height + theme.s4
        width: parent.width - 2 * theme.s8
        height: Math.min(contentHeight, root.most * theme.queueMost)
        model: queuedModel
        clip: true
        cacheBuffer: 0
        currentIndex: 0
        highlightMoveDuration: 0
        boundsBehavior: Flickable.StopAtBounds
        keyNavigationEnabled: false
        Accessible.role: Accessible.List
        Accessible.name: now.queueWord || "Messages that wait"
        onCurrentIndexChanged: positionViewAtIndex(currentIndex, ListView.Contain)
        Keys.onPressed: (event) => {
            const alt = event.modifiers & Qt.AltModifier;
            const deeds = {};
            deeds[Qt.Key_Delete] = "queue-remove";
            deeds[Qt.Key_F2] = "queue-edit";
            deeds[Qt.Key_Return] = deeds[Qt.Key_Enter] = event.modifiers & Qt.ControlModifier ? "queue-send" : "queue-edit";
            const steps = {};
            steps[Qt.Key_Up] = -1;
            steps[Qt.Key_Down] = 1;
            steps[Qt.Key_Home] = -count;
            steps[Qt.Key_End] = count;
            if (editing.length > 0 || !currentItem)
                return;
            if (event.key in deeds)
                carry(deeds[event.key], currentItem.row, false);
            else if (alt && (event.key === Qt.Key_Up || event.key === Qt.Key_Down))
                carry(event.key === Qt.Key_Up ? "queue-up" : "queue-down", currentItem.row, false);
            else if (event.key in steps)
                go(steps[event.key]);
            else if (event.key === Qt.Key_Escape)
                root.ended();
            else
                return;
            event.accepted = true;
        }

        delegate: QueueLine {}
        T.ScrollBar.vertical: Bar {}
    }
}
