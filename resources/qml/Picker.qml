import QtQuick
import QtQuick.Templates as T

// Harness, connection and model, with what each of them means for the person. Letters narrow it down.
T.Popup {
    id: picker

    property real roomWidth: theme.picker
    property real roomHeight: theme.picker
    property string effort
    property bool eager: false
    readonly property bool waiting: now.offerWaiting
    readonly property var row: list.currentItem ? list.currentItem.row : null

    function aim() {
        let at = -1;
        for (let place = 0; place < list.count && at < 0; ++place)
            if (choicesModel.rowAt(place).chosen)
                at = place;
        list.currentIndex = list.count > 0 ? Math.max(0, at) : -1;
        reveal();
    }
    function reveal() {
        list.forceLayout();
        if (list.currentIndex >= 0)
            list.positionViewAtIndex(list.currentIndex, ListView.Contain);
    }
    function step(by) {
        if (list.count === 0)
            return;
        list.currentIndex = Math.max(0, Math.min(list.count - 1, list.currentIndex + by));
        list.Accessible.announce(row.said);
    }
    function turn(by) {
        if (!row || row.efforts.length === 0)
            return;
        const at = row.efforts.indexOf(effort);
        effort = row.efforts[at < 0 ? (by > 0 ? 0 : row.efforts.length - 1) : Math.max(0, Math.min(row.efforts.length - 1, at + by))];
        list.Accessible.announce("Effort " + effort);
    }
    // Enter before the host has answered what was typed: its answer is taken, never what stood there before.
    function confirm() {
        eager = waiting;
        if (!waiting)
            take(row, effort);
    }
    function take(entry, wanted) {
        if (!entry || !entry.available)
            return;
        remuda.choose(entry.id, entry.efforts.indexOf(wanted) < 0 ? "" : wanted);
        close();
    }

    width: Math.min(theme.picker, roomWidth)
    height: Math.min(top.height + list.contentHeight + foot.height + topPadding + bottomPadding, roomHeight)
    padding: theme.s4
    focus: true
    closePolicy: T.Popup.CloseOnEscape | T.Popup.CloseOnPressOutside
    background: Floating {}
    onAboutToShow: {
        find.text = "";
        eager = false;
        effort = now.effort;
        setup.findChoice("");
        if (now.conversation.length === 0)
            setup.askAgents();
        aim();
    }
    onOpened: {
        find.forceActiveFocus(Qt.PopupFocusReason);
        Qt.callLater(aim);
    }
    onWaitingChanged: {
        if (waiting || !eager)
            return;
        eager = false;
        aim();
        take(row, effort);
    }

    Connections {
        target: choicesModel
        enabled: picker.visible
        function onRowsInserted() { Qt.callLater(picker.aim); }
        function onRowsRemoved() { Qt.callLater(picker.aim); }
        function onDataChanged() { Qt.callLater(picker.aim); }
    }

    contentItem: Item {
        Column {
            id: top
            width: parent.width
            padding: theme.s4
            spacing: theme.s4

            Field {
                id: find
                width: parent.width - 2 * parent.padding
                glyph: "search"
                says: "Find a model or a harness"
                Accessible.description: "Up and down choose, left and right change the effort, Enter takes it."
                onTextEdited: {
                    picker.eager = false;
                    setup.findChoice(text);
                }
                Keys.onUpPressed: picker.step(-1)
                Keys.onDownPressed: picker.step(1)
                Keys.onReturnPressed: picker.confirm()
                Keys.onEnterPressed: picker.confirm()
                Keys.onPressed: (event) => {
                    const side = event.key === Qt.Key_Left ? -1 : event.key === Qt.Key_Right ? 1 : 0;
                    if (side !== 0 && (length === 0 || event.modifiers & Qt.AltModifier)) {
                        picker.turn(side);
                        event.accepted = true;
                    } else if (event.key === Qt.Key_PageDown || event.key === Qt.Key_PageUp) {
                        picker.step((event.key === Qt.Key_PageDown ? 1 : -1) * Math.max(1, Math.floor(list.height / theme.row)));
                        event.accepted = true;
                    }
                }
            }
            Btn {
                id: agent
                visible: now.conversation.length === 0 && now.agentCount > 1
                flat: true
                glyph: "down"
                trailing: true
                most: parent.width - theme.s48
                text: now.agentName.length > 0 ? "With " + now.agentName : "With which agent"
                Accessible.role: Accessible.ButtonMenu
                Accessible.name: "Agent: " + now.agentName
                onClicked: {
                    const entries = [];
                    for (let at = 0; at < agentsModel.rowCount(); ++at) {
                        const row = agentsModel.rowAt(at);
                        entries.push({ name: row.id, label: row.name, explains: row.sentence, icon: "", key: "", checked: row.id === now.agent });
                    }
                    who.show(agent, entries, "");
                }
                Menu {
                    id: who
                    x: 0
                    onPicked: (name) => {
                        picker.close();
                        remuda.startWith(name);
                    }
                }
            }
        }
        ListView {
            id: list
            anchors.left: parent.left
            anchors.right: parent.right
            anchors.top: top.bottom
            anchors.bottom: foot.top
            model: choicesModel
            clip: true
            boundsBehavior: Flickable.StopAtBounds
            keyNavigationEnabled: false
            highlightMoveDuration: 0
            currentIndex: -1
            onHeightChanged: Qt.callLater(picker.reveal)
            Accessible.role: Accessible.List
            Accessible.name: "Harness and model"
            T.ScrollBar.vertical: Bar {}

            delegate: Item {
                id: entry

                required property var row
                required property int index
                readonly property bool current: ListView.isCurrentItem

                width: list.width
                height: card.y + card.height
                Accessible.role: Accessible.ListItem
                Accessible.name: row.said
                Accessible.selected: row.chosen
                Accessible.focused: current

                Column {
                    id: heading
                    x: theme.s12
                    y: theme.s8
                    width: parent.width - 2 * theme.s12
                    visible: entry.row.heading.length > 0
                    bottomPadding: theme.s4
                    Name {
                        width: parent.width
                        text: entry.row.heading
                        font.pixelSize: theme.fontSmall
                        font.weight: theme.strong
                        color: theme.quiet
                    }
                    Quiet {
                        width: parent.width
                        visible: text.length > 0
                        text: entry.row.means
                        font.pixelSize: theme.fontSmall
                        horizontalAlignment: Text.AlignLeft
                    }
                }
                T.AbstractButton {
                    id: card
                    y: heading.visible ? heading.y + heading.height : 0
                    width: parent.width - theme.bar - theme.s4
                    height: words.height + 2 * theme.s8
                    hoverEnabled: true
                    focusPolicy: Qt.NoFocus
                    Accessible.ignored: true
                    onClicked: picker.take(entry.row, entry.current || entry.row.chosen ? picker.effort : "")

                    ModelWords {
                        id: words
                        x: theme.s12
                        y: theme.s8
                        width: parent.width - 2 * theme.s12 - theme.icon - theme.s8
                        row: entry.row
                        mark: entry.row.default ? "default" : ""
                    }
                    Icon {
                        anchors.right: parent.right
                        anchors.rightMargin: theme.s12
                        y: theme.s8
                        visible: entry.row.chosen
                        name: "check"
                        tint: theme.accent
                    }
                    background: Rectangle {
                        radius: theme.radius
                        color: entry.row.chosen ? theme.chosen : card.hovered ? theme.hover : "transparent"
                        FocusRing {
                            shown: entry.current
                            anchors.margins: 0
                        }
                    }
                }
            }
        }
        Column {
            id: foot
            anchors.left: parent.left
            anchors.right: parent.right
            anchors.bottom: parent.bottom
            topPadding: theme.s4

            Quiet {
                x: theme.s12
                width: parent.width - 2 * theme.s12
                bottomPadding: theme.s8
                topPadding: theme.s4
                visible: text.length > 0
                font.pixelSize: theme.fontSmall
                text: now.offerTotal === 0 && find.length > 0 ? "No model has these letters."
                    : now.offerTotal > now.offerShown ? "The first " + now.offerShown + " of " + now.offerTotal + ". Letters of a name find the others." : ""
            }
            Rectangle {
                width: parent.width
                height: theme.hairline
                color: theme.line
            }
            Flow {
                x: theme.s12
                width: parent.width - 2 * theme.s12
                topPadding: theme.s8
                bottomPadding: theme.s8
                spacing: theme.s4
                visible: picker.row !== null && picker.row.efforts.length > 0
                Accessible.role: Accessible.Grouping
                Accessible.name: "Effort"

                Quiet {
                    height: theme.control
                    rightPadding: theme.s4
                    text: "Effort"
                }
                Repeater {
                    model: picker.row ? picker.row.efforts : []
                    Btn {
                        required property string modelData
                        text: modelData
                        primary: modelData === picker.effort
                        Accessible.role: Accessible.RadioButton
                        Accessible.name: "Effort " + modelData
                        Accessible.checkable: true
                        Accessible.checked: primary
                        onClicked: picker.take(picker.row, modelData)
                    }
                }
            }
            Rectangle {
                width: parent.width
                height: theme.hairline
                color: theme.line
                visible: picker.row !== null && picker.row.efforts.length > 0
            }
            Btn {
                flat: true
                glyph: actionTable.settings.icon
                text: "Models and connectors"
                onClicked: {
                    picker.close();
                    setup.open("connections");
                }
            }
        }
    }
}
