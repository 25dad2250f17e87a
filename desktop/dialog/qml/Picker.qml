// One of many: typing finds, arrows choose.
import QtQuick

Column {
    id: picker
    required property var look
    required property string label
    required property var rows
    property string chosen: ""
    property string hint: ""
    property string sentence: ""
    property bool wrong: false
    signal edited()
    signal entered()
    signal took(Item item)
    spacing: look.s4
    function take() { find.forceActiveFocus() }
    readonly property var fitting: {
        const word = find.text.trim().toLowerCase()
        return word === "" ? rows : rows.filter((row) => (row.label + " " + row.means).toLowerCase().indexOf(word) >= 0)
    }
    readonly property var row: rows.find((one) => one.value === chosen)
    function press(value) { chosen = value; edited(); show(ListView.Contain) }
    function show(how) {
        const place = fitting.findIndex((one) => one.value === chosen)
        if (place >= 0) list.positionViewAtIndex(place, how)
    }
    function step(by) {
        if (fitting.length === 0) return
        const place = fitting.findIndex((one) => one.value === chosen)
        press(fitting[place < 0 ? 0 : Math.max(0, Math.min(fitting.length - 1, place + by))].value)
    }
    Component.onCompleted: Qt.callLater(() => show(ListView.Center))

    Plain {
        look: picker.look
        width: parent.width
        text: picker.label
        font.pixelSize: picker.look.fontQuiet
        font.weight: picker.look.medium
    }
    Rectangle {
        width: parent.width
        height: head.height + list.height + picker.look.s8
        radius: picker.look.radius
        color: picker.look.raised
        border.width: find.activeFocus ? picker.look.focusLine : picker.look.hairline
        border.color: find.activeFocus ? picker.look.focus : picker.wrong ? picker.look.failed : picker.look.border
        Item {
            id: head
            width: parent.width
            height: picker.look.control + picker.look.s8
            TextInput {
                id: find
                anchors.left: parent.left
                anchors.leftMargin: picker.look.s12
                anchors.right: parent.right
                anchors.rightMargin: picker.look.s12
                anchors.verticalCenter: parent.verticalCenter
                clip: true
                activeFocusOnTab: true
                maximumLength: 256
                color: picker.look.text
                selectionColor: picker.look.selection
                selectedTextColor: picker.look.onSelection
                font.family: picker.look.fontText
                font.pixelSize: picker.look.fontBody
                cursorDelegate: Rectangle { width: picker.look.caret; color: picker.look.accent; visible: find.activeFocus }
                onActiveFocusChanged: if (activeFocus) picker.took(picker)
                onTextEdited: list.positionViewAtBeginning()
                Keys.onPressed: (event) => {
                    const steps = { [Qt.Key_Down]: 1, [Qt.Key_Up]: -1, [Qt.Key_PageDown]: 5, [Qt.Key_PageUp]: -5 }
                    if (steps[event.key] !== undefined) picker.step(steps[event.key])
                    else if (event.key === Qt.Key_Return || event.key === Qt.Key_Enter) {
                        const word = find.text.trim() !== ""
                        if (word && picker.fitting.length > 0 && !picker.fitting.some((one) => one.value === picker.chosen)) picker.press(picker.fitting[0].value)
                        else picker.entered()
                    }
                    else return
                    event.accepted = true
                }
                Accessible.role: Accessible.EditableText
                Accessible.name: qsTr("%1, type to find").arg(picker.label)
                Accessible.description: picker.row ? qsTr("Chosen: %1").arg(picker.row.label) : picker.sentence
                Plain {
                    look: picker.look
                    width: parent.width
                    visible: find.length === 0 && find.preeditText === ""
                    wrapMode: Text.NoWrap
                    elide: Text.ElideRight
                    text: picker.row ? qsTr("%1 · type to find another").arg(picker.row.label) : picker.hint !== "" ? picker.hint : qsTr("Type to find, arrows to choose")
                    color: picker.look.quiet
                    Accessible.ignored: true
                }
            }
            Rectangle { anchors.bottom: parent.bottom; width: parent.width; height: picker.look.hairline; color: picker.look.line }
        }
        ListView {
            id: list
            anchors.top: head.bottom
            anchors.topMargin: picker.look.s4
            x: picker.look.s4
            width: parent.width - 2 * picker.look.s4
            height: (picker.look.control + picker.look.s8) * 5
            clip: true
            boundsBehavior: Flickable.StopAtBounds
            model: picker.fitting
            Accessible.role: Accessible.List
            Accessible.name: picker.label
            delegate: Rectangle {
                id: entry
                required property var modelData
                readonly property bool on: modelData.value === picker.chosen
                width: list.width
                height: Math.max(picker.look.control, words.implicitHeight + picker.look.s8)
                radius: picker.look.radius
                color: on ? picker.look.accentGround : area.containsMouse ? picker.look.hover : "transparent"
                Accessible.role: Accessible.ListItem
                Accessible.name: modelData.label
                Accessible.selected: on
                Accessible.onPressAction: picker.press(modelData.value)
                Column {
                    id: words
                    anchors.verticalCenter: parent.verticalCenter
                    x: picker.look.s8
                    width: parent.width - 2 * picker.look.s8
                    Plain { look: picker.look; width: parent.width; wrapMode: Text.NoWrap; elide: Text.ElideMiddle; text: entry.modelData.label; font.weight: entry.on ? picker.look.medium : Font.Normal; Accessible.ignored: true }
                    Plain { look: picker.look; width: parent.width; visible: text !== ""; wrapMode: Text.NoWrap; elide: Text.ElideRight; text: entry.modelData.means; color: picker.look.quiet; font.pixelSize: picker.look.fontSmall; Accessible.ignored: true }
                }
                MouseArea { id: area; anchors.fill: parent; hoverEnabled: true; onClicked: { picker.press(entry.modelData.value); find.forceActiveFocus() } }
            }
            Plain {
                look: picker.look
                anchors.centerIn: parent
                visible: list.count === 0
                text: qsTr("Nothing of that name.")
                color: picker.look.quiet
            }
        }
        Rectangle {
            visible: list.contentHeight > list.height
            width: picker.look.bar
            radius: picker.look.radiusBar
            color: picker.look.border
            x: parent.width - width - picker.look.s4
            height: Math.max(picker.look.barLeast, list.height * list.height / Math.max(1, list.contentHeight))
            y: list.y + (list.height - height) * (list.contentY - list.originY) / Math.max(1, list.contentHeight - list.height)
        }
    }
    Plain {
        look: picker.look
        width: parent.width
        visible: text !== ""
        text: picker.sentence
        color: picker.wrong ? picker.look.failed : picker.look.quiet
        font.pixelSize: picker.look.fontQuiet
    }
}
