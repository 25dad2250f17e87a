import QtQuick
import QtQuick.Templates as T

// A page of one column that scrolls; what gets the focus comes into sight.
Flickable {
    id: page

    default property alias content: column.data
    property real room: theme.measure
    property real gap: theme.s16
    property bool centred: false

    function scrollBy(by) {
        contentY = Math.max(0, Math.min(Math.max(0, contentHeight - height), contentY + by));
    }
    function reveal(item) {
        let above = item;
        while (above && above !== column)
            above = above.parent;
        if (!above)
            return;
        const top = item.mapToItem(contentItem, 0, 0).y - theme.s24;
        const bottom = top + item.height + theme.s48;
        if (top < contentY)
            scrollBy(top - contentY);
        else if (bottom > contentY + height)
            scrollBy(Math.min(bottom - contentY - height, top - contentY));
    }

    contentWidth: width
    contentHeight: column.y + column.height + theme.s48
    boundsBehavior: Flickable.StopAtBounds
    clip: true
    T.ScrollBar.vertical: Bar {}
    Keys.onPressed: (event) => {
        const steps = {};
        steps[Qt.Key_Up] = -theme.s48;
        steps[Qt.Key_Down] = theme.s48;
        steps[Qt.Key_PageUp] = theme.s48 - height;
        steps[Qt.Key_PageDown] = height - theme.s48;
        steps[Qt.Key_Home] = -contentHeight;
        steps[Qt.Key_End] = contentHeight;
        if (event.key in steps) {
            scrollBy(steps[event.key]);
            event.accepted = true;
        }
    }

    Connections {
        target: page.visible ? page.Window.window : null
        function onActiveFocusItemChanged() {
            if (page.Window.activeFocusItem)
                page.reveal(page.Window.activeFocusItem);
        }
    }
    Column {
        id: column
        x: Math.max(theme.s16, (page.width - width) / 2)
        y: page.centred ? Math.max(theme.s24, (page.height - height) / 2) : theme.s24
        width: Math.max(0, Math.min(page.room, page.width - 2 * theme.s16))
        spacing: page.gap
    }
}
