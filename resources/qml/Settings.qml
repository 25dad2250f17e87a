import QtQuick

// Everything a person sets up, page by page. Made when it is opened, gone when it is left.
Item {
    id: root

    readonly property var places: [
        { name: "connections", label: "Connectors", file: "Connections.qml" },
        { name: "models", label: "Models", file: "Models.qml" },
        { name: "harnesses", label: "Harnesses", file: "Harnesses.qml" },
        { name: "agents", label: "Agents", file: "Agents.qml" },
        { name: "mounts", label: "Mounts", file: "Mounts.qml" },
        { name: "profiles", label: "Profiles", file: "Profiles.qml" },
        { name: "stored", label: "Stored", file: "Stored.qml" },
        { name: "appearance", label: "Appearance", file: "Appearance.qml" }
    ]
    readonly property int at: Math.max(0, places.findIndex((place) => place.name === now.place))

    function take(reason) {
        tabs.itemAt(at).forceActiveFocus(reason);
    }
    function go(by) {
        setup.open(places[(at + by + places.length) % places.length].name);
        take(Qt.TabFocusReason);
    }

    onAtChanged: if (tabs.count > at && !tabs.itemAt(at).activeFocus) take(Qt.TabFocusReason)
    Keys.onEscapePressed: remuda.leave()

    Connections {
        target: remuda
        function onAsked(name) {
            if (name === "settings")
                root.take(Qt.TabFocusReason);
        }
    }

    Flow {
        id: bar
        readonly property real side: root.width < theme.form ? theme.s8 : theme.s12
        x: Math.max(theme.s16, (root.width - theme.measure) / 2) - side
        width: root.width - 2 * x
        Accessible.role: Accessible.PageTabList
        Accessible.name: "Settings"
        Keys.onLeftPressed: root.go(-1)
        Keys.onRightPressed: root.go(1)

        Repeater {
            id: tabs
            model: root.places
            Tab {
                required property var modelData
                text: modelData.label
                current: modelData.name === now.place
                side: bar.side
                onClicked: setup.open(modelData.name)
            }
        }
    }
    Rectangle {
        anchors.top: bar.bottom
        width: parent.width
        height: theme.hairline
        color: theme.line
    }
    Loader {
        anchors.top: bar.bottom
        anchors.topMargin: theme.hairline
        anchors.bottom: parent.bottom
        anchors.bottomMargin: works.visible ? works.height : 0
        width: parent.width
        source: root.places[root.at].file
    }
    Works {
        id: works
        anchors.bottom: parent.bottom
        width: parent.width
        side: bar.x + bar.side
    }
}
