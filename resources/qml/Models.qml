import QtQuick
import QtQuick.Templates as T

// Every model that is offered, with what is known about it and who says so.
Item {
    id: root

    readonly property real columnWidth: Math.max(0, Math.min(theme.measure, width - 2 * theme.s16))
    readonly property real columnLeft: (width - columnWidth) / 2

    function deeds(row) {
        const names = [];
        if (row.available) {
            if (!row.default)
                names.push("default-everywhere");
            if (row.narrowed && !row.own)
                names.push("default");
        }
        if (row.declarable)
            names.push("declare-model");
        return names.map((name) => proposalTable[name]);
    }

    Flow {
        id: tools
        x: root.columnLeft
        y: theme.s24
        width: root.columnWidth
        spacing: theme.s8

        Field {
            id: find
            width: root.columnWidth < theme.form ? root.columnWidth : root.columnWidth - of.width - theme.s8
            glyph: "search"
            says: now.modelsOf.length > 0 ? "Find a model of " + now.modelsOf : "Find a model"
            text: now.modelsFilter
            onTextEdited: setup.findModel(text)
            Keys.onDownPressed: list.forceActiveFocus(Qt.TabFocusReason)
            Keys.onEscapePressed: (event) => {
                event.accepted = text.length > 0;
                text = "";
                setup.findModel("");
            }
        }
        Btn {
            id: of
            text: now.modelsOf.length > 0 ? now.modelsOf : "All connectors"
            most: theme.menuLeast
            glyph: "down"
            trailing: true
            Accessible.role: Accessible.ButtonMenu
            Accessible.name: "Models of: " + text
            onClicked: {
                const entries = [{ name: "", label: "All connectors", explains: "", icon: "", key: "", checked: now.modelsConnector.length === 0 }];
                for (let at = 0; at < connectorsModel.rowCount(); ++at) {
                    const row = connectorsModel.rowAt(at);
                    entries.push({ name: row.id, label: row.name, explains: row.what, icon: "", key: "", checked: row.id === now.modelsConnector });
                }
                which.show(of, entries, "");
            }
        }
    }
    ListView {
        id: list
        anchors.top: tools.bottom
        anchors.topMargin: theme.s12
        anchors.bottom: parent.bottom
        width: parent.width
        model: modelsModel
        clip: true
        boundsBehavior: Flickable.StopAtBounds
        activeFocusOnTab: count > 0
        currentIndex: -1
        highlightMoveDuration: 0
        Accessible.role: Accessible.List
        Accessible.name: "Models"
        onActiveFocusChanged: if (activeFocus && currentIndex < 0) currentIndex = 0
        Keys.onReturnPressed: if (currentItem) currentItem.open()
        Keys.onEnterPressed: if (currentItem) currentItem.open()
        Keys.onSpacePressed: if (currentItem) currentItem.open()
        Keys.onUpPressed: currentIndex > 0 ? decrementCurrentIndex() : find.forceActiveFocus(Qt.BacktabFocusReason)
        T.ScrollBar.vertical: Bar {}

        delegate: Item {
            id: entry

            required property var row
            required property int index
            readonly property bool current: ListView.isCurrentItem && list.activeFocus
            readonly property var offered: root.deeds(row)

            function open() {
                if (offered.length > 0)
                    menu.show(more, offered, row.id);
            }

            width: list.width
            height: card.height
            Accessible.role: Accessible.ListItem
            Accessible.name: row.said
            Accessible.focusable: true
            Accessible.focused: current

            T.AbstractButton {
                id: card
                x: root.columnLeft - theme.s8
                width: root.columnWidth + 2 * theme.s8
                height: words.height + 2 * theme.s12
                hoverEnabled: true
                focusPolicy: Qt.NoFocus
                Accessible.ignored: true
                onClicked: {
                    list.currentIndex = entry.index;
                    entry.open();
                }

                ModelWords {
                    id: words
                    x: theme.s8
                    y: theme.s12
                    width: parent.width - 2 * theme.s8 - theme.s24
                    row: entry.row
                    mark: entry.row.default ? "for new conversations" : entry.row.own ? "default of this connector" : ""
                    where: now.modelsConnector.length === 0
                }
                Icon {
                    id: more
                    visible: entry.offered.length > 0 && (card.hovered || entry.current)
                    anchors.right: parent.right
                    anchors.rightMargin: theme.s8
                    anchors.verticalCenter: parent.verticalCenter
                    name: "more"
                    tint: theme.quiet
                }
                Rectangle {
                    anchors.bottom: parent.bottom
                    x: theme.s8
                    width: parent.width - 2 * theme.s8
                    height: theme.hairline
                    color: theme.line
                }
                background: Rectangle {
                    radius: theme.radius
                    color: card.hovered ? theme.hover : "transparent"
                    FocusRing {
                        shown: entry.current
                        anchors.margins: 0
                    }
                }
            }
        }
        footer: Item {
            width: list.width
            height: rest.visible ? rest.height + theme.s48 : theme.s32
            Quiet {
                id: rest
                x: root.columnLeft
                y: theme.s16
                width: root.columnWidth
                visible: text.length > 0
                text: !now.modelsKnown ? "Asking"
                    : now.modelsTotal === 0 && now.modelsFilter.length > 0 ? "No model has these letters. Esc clears the search."
                    : now.modelsTotal === 0 && now.modelsOf.length > 0 ? "No model is known here. Test the connector, or ask for its models."
                    : now.modelsTotal === 0 ? "No model is here. Add a connector first."
                    : now.modelsTotal > now.modelsShown ? "The first " + now.modelsShown + " of " + now.modelsTotal + ". Letters of a name find the others." : ""
            }
            Btn {
                x: root.columnLeft
                anchors.top: rest.bottom
                anchors.topMargin: theme.s12
                visible: now.modelsKnown && now.modelsTotal === 0 && now.modelsFilter.length === 0
                text: now.modelsOf.length > 0 ? proposalTable.refresh.label : proposalTable["add-connector"].label
                onClicked: now.modelsOf.length > 0 ? setup.refresh(now.modelsConnector) : setup.propose("add-connector")
            }
        }
    }

    Menu {
        id: which
        onPicked: (name) => setup.modelsOf(name)
    }
    Menu {
        id: menu
        onPicked: (name) => name === "declare-model" ? setup.propose(name, target) : setup.setDefault(target, name === "default-everywhere")
    }
}
