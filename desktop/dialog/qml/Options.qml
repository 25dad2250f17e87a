// One of several, or several of several: a row for each with what it means. Tiles where they are short.
import QtQuick

Column {
    id: options
    required property var look
    required property string label
    required property var rows
    property bool several: false
    property int columns: 1
    property string chosen: ""
    property var checked: []
    property string sentence: ""
    property bool wrong: false
    property bool armed: true
    signal edited()
    signal entered()
    signal clicked()
    signal took(Item item)
    spacing: look.s4

    readonly property int place: rows.findIndex((row) => row.value === chosen)
    function take() {
        const item = repeater.itemAt(several ? 0 : Math.max(0, place))
        if (item !== null) item.forceActiveFocus()
    }
    function isChosen(value) { return several ? checked.indexOf(value) >= 0 : chosen === value }
    function press(value) {
        if (!several) chosen = value
        else checked = isChosen(value) ? checked.filter((one) => one !== value) : checked.concat([value])
        edited()
    }
    function step(from, by) {
        const next = from + by
        if (next < 0 || next >= rows.length) return
        if (!several) { chosen = rows[next].value; edited() }
        repeater.itemAt(next).forceActiveFocus()
    }

    Plain {
        look: options.look
        width: parent.width
        visible: text !== ""
        text: options.label
        font.pixelSize: options.look.fontQuiet
        font.weight: options.look.medium
    }
    // Tiles in rows of one height, whatever stands in them.
    property real tallest: 0
    Grid {
        id: grid
        width: parent.width
        columns: options.columns
        spacing: options.look.s8
        Accessible.role: Accessible.Grouping
        Accessible.name: options.label
        Repeater {
            id: repeater
            model: options.rows
            Rectangle {
                id: row
                required property var modelData
                required property int index
                readonly property bool on: options.isChosen(modelData.value)
                width: (grid.width - (options.columns - 1) * grid.spacing) / options.columns
                readonly property real own: Math.max(words.implicitHeight + 2 * options.look.s8, options.look.control + options.look.s8)
                onOwnChanged: options.tallest = Math.max(options.tallest, own)
                Component.onCompleted: options.tallest = Math.max(options.tallest, own)
                height: options.columns > 1 ? Math.max(own, options.tallest) : own
                radius: options.look.radius
                color: on ? options.look.accentGround : area.containsMouse ? options.look.hover : options.look.raised
                border.width: activeFocus ? options.look.focusLine : options.look.hairline
                border.color: activeFocus ? options.look.focus : options.wrong ? options.look.failed : on ? options.look.accent : options.look.border
                // One stop for a group of which one is chosen: the chosen one, or the first.
                activeFocusOnTab: options.several || activeFocus || index === Math.max(0, options.place)
                onActiveFocusChanged: if (activeFocus) options.took(row)
                Accessible.role: options.several ? Accessible.CheckBox : Accessible.RadioButton
                Accessible.name: modelData.label
                Accessible.description: modelData.means
                Accessible.checkable: true
                Accessible.checked: on
                Accessible.focusable: true
                Accessible.onPressAction: options.press(modelData.value)
                Keys.onPressed: (event) => {
                    const steps = { [Qt.Key_Down]: options.columns, [Qt.Key_Up]: -options.columns, [Qt.Key_Right]: 1, [Qt.Key_Left]: -1 }
                    if (steps[event.key] !== undefined) options.step(index, steps[event.key])
                    else if (event.key === Qt.Key_Space) options.press(modelData.value)
                    else if (event.key === Qt.Key_Return || event.key === Qt.Key_Enter) {
                        if (!options.several && !on) options.press(modelData.value)
                        options.entered()
                    }
                    else return
                    event.accepted = true
                }
                Rectangle {
                    id: mark
                    x: options.look.s12
                    y: words.y + (title.height - height) / 2
                    width: options.look.s16
                    height: width
                    radius: options.several ? options.look.s4 : width / 2
                    color: row.on ? options.look.accent : options.look.page
                    border.width: row.on ? 0 : options.look.hairline
                    border.color: options.look.border
                    Strokes {
                        anchors.centerIn: parent
                        visible: row.on && options.several
                        size: parent.width
                        weight: 3
                        path: "M5 12.500l4.500 4.500L19 7.500"
                        colour: options.look.onAccent
                    }
                    Rectangle {
                        anchors.centerIn: parent
                        visible: row.on && !options.several
                        width: Math.round(parent.width * 0.4)
                        height: width
                        radius: width / 2
                        color: options.look.onAccent
                    }
                }
                Column {
                    id: words
                    anchors.left: mark.right
                    anchors.leftMargin: options.look.s8
                    anchors.right: parent.right
                    anchors.rightMargin: options.look.s12
                    y: row.modelData.means === "" ? (row.height - height) / 2 : options.look.s8
                    Plain { id: title; look: options.look; width: parent.width; text: row.modelData.label; font.weight: row.on ? options.look.medium : Font.Normal; Accessible.ignored: true }
                    Plain {
                        look: options.look
                        width: parent.width
                        visible: text !== ""
                        text: row.modelData.means
                        color: options.look.quiet
                        font.pixelSize: options.look.fontSmall
                        Accessible.ignored: true
                    }
                }
                MouseArea {
                    id: area
                    anchors.fill: parent
                    hoverEnabled: true
                    onClicked: { options.press(row.modelData.value); row.forceActiveFocus(); options.clicked() }
                }
            }
        }
    }
    Plain {
        look: options.look
        width: parent.width
        visible: text !== ""
        text: options.sentence
        color: options.wrong ? options.look.failed : options.look.quiet
        font.pixelSize: options.look.fontQuiet
    }
}
