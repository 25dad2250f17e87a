import QtQuick

// A message that waits: its words, and what can be done with it while it is looked at.
Item {
    id: line

    required property var row
    required property int index
    readonly property ListView view: ListView.view
    readonly property bool current: ListView.isCurrentItem
    readonly property bool editing: view !== null && view.editing === row.id
    readonly property real beside: view && view.contentHeight > view.height ? theme.bar + theme.s4 : 0
    readonly property bool busy: current || pointer.hovered

    width: view ? view.width - beside : 0
    // Keys come to the message itself, and from there to what can be done with it.
    function take(reason) {
        view.choose(index, row.id);
        forceActiveFocus(reason);
    }
    function takeTool(deed) {
        view.choose(index, row.id); // the list gives the focus to the row that becomes its current one
        for (let place = 0; place < all.count; ++place) {
            const tool = all.itemAt(place);
            if (tool.modelData === deed && tool.enabled) {
                tool.forceActiveFocus(Qt.TabFocusReason);
                return;
            }
        }
        take(Qt.TabFocusReason);
    }

    activeFocusOnTab: current || activeFocus
    onActiveFocusChanged: if (activeFocus) view.choose(index, row.id)
    height: words.y + Math.max(words.height, tools.height) + theme.s4
    Accessible.role: Accessible.ListItem
    Accessible.name: row.said
    Accessible.description: row.why
    Accessible.selected: current
    Accessible.selectable: true

    HoverHandler { id: pointer }
    TapHandler {
        onTapped: line.take(Qt.MouseFocusReason)
    }
    Rectangle {
        y: words.y - theme.s4
        width: parent.width
        height: parent.height - y
        radius: theme.radius
        color: line.busy && !line.editing ? theme.hover : "transparent"
        FocusRing {
            shown: line.activeFocus
            anchors.margins: 0
        }
    }
    Quiet {
        id: heading
        visible: text.length > 0
        x: theme.s8
        y: line.index > 0 ? theme.s8 : 0
        width: parent.width - 2 * theme.s8
        text: line.row.heading
        font.pixelSize: theme.fontSmall
        font.weight: theme.medium
        horizontalAlignment: Text.AlignLeft
        elide: Text.ElideRight
        wrapMode: Text.NoWrap
        Accessible.ignored: true
    }
    Item {
        id: words
        x: theme.s8
        y: (heading.visible ? heading.y + heading.height + theme.s4 : 0) + theme.s4
        width: parent.width - 2 * theme.s8 - (line.editing ? save.width + theme.s8 : tools.width + theme.s8)
        height: line.editing ? Math.max(editor.height, save.height) : Math.max(shown.height, theme.s24)

        Words {
            id: shown
            visible: !line.editing
            width: parent.width
            anchors.verticalCenter: parent.verticalCenter
            text: line.row.text
            font.pixelSize: theme.fontQuiet
            elide: Text.ElideRight
            maximumLineCount: 2
            wrapMode: Text.WrapAtWordBoundaryOrAnywhere
            Accessible.ignored: true
        }
        Loader {
            id: editor
            active: line.editing
            width: parent.width
            sourceComponent: QueueEdit {
                words: line.view.edited
                says: "Message that waits, " + (line.index + 1) + " of " + line.view.count
                onTyped: (text) => line.view.edited = text
                onSaved: line.view.save()
                onEnded: line.view.leaveEdit()
            }
            onLoaded: item.take()
        }
    }
    Btn {
        id: save
        anchors.right: parent.right
        anchors.rightMargin: theme.s8
        y: words.y
        visible: line.editing
        small: true
        text: "Keep"
        Accessible.name: "Keep the change"
        onClicked: line.view.save()
    }
    Row {
        id: tools
        anchors.right: parent.right
        anchors.rightMargin: theme.s4
        y: words.y
        height: theme.s24
        visible: !line.editing
        opacity: line.busy ? 1 : 0

        Repeater {
            id: all
            model: ["queue-send", "queue-edit", "queue-up", "queue-down", "queue-remove"]
            IconBtn {
                id: tool
                required property string modelData
                readonly property var deed: queueTable[modelData]
                readonly property bool can: modelData === "queue-send" ? line.row.sendable : modelData === "queue-edit" ? line.row.editable
                                          : modelData === "queue-up" ? line.row.earlier : modelData === "queue-down" ? line.row.later : true

                side: theme.s24
                glyph: deed.icon
                says: deed.label
                key: deed.key
                enabled: can
                focusPolicy: line.current || activeFocus ? Qt.TabFocus : Qt.NoFocus
                Accessible.name: deed.label + ": " + line.row.said
                Accessible.description: modelData === "queue-edit" ? line.row.why : deed.explains
                Accessible.ignored: !line.current
                onActiveFocusChanged: if (activeFocus) line.view.choose(line.index, line.row.id)
                onClicked: line.view.carry(modelData, line.row, activeFocus)
            }
        }
    }
}
