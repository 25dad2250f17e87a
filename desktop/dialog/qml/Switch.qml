// Yes or no: a box to tick, its words beside it.
import QtQuick

Column {
    id: field
    required property var look
    required property string label
    property bool on: false
    property string sentence: ""
    property bool wrong: false
    signal edited()
    signal entered()
    signal took(Item item)
    spacing: look.s4
    function take() { row.forceActiveFocus() }
    function flip() { on = !on; edited() }

    Item {
        id: row
        width: parent.width
        height: Math.max(field.look.control, words.implicitHeight)
        activeFocusOnTab: true
        onActiveFocusChanged: if (activeFocus) field.took(field)
        Accessible.role: Accessible.CheckBox
        Accessible.name: field.label
        Accessible.description: field.sentence
        Accessible.checkable: true
        Accessible.checked: field.on
        Accessible.focusable: true
        Accessible.onPressAction: field.flip()
        Keys.onPressed: (event) => {
            if (event.key === Qt.Key_Space) field.flip()
            else if (event.key === Qt.Key_Return || event.key === Qt.Key_Enter) field.entered()
            else return
            event.accepted = true
        }
        Rectangle {
            id: box
            anchors.verticalCenter: parent.verticalCenter
            width: field.look.s16 + field.look.s4
            height: width
            radius: field.look.s4
            color: field.on ? field.look.accent : field.look.raised
            border.width: row.activeFocus ? field.look.focusLine : field.on ? 0 : field.look.hairline
            border.color: row.activeFocus ? field.look.focus : field.look.border
            Strokes {
                anchors.centerIn: parent
                visible: field.on
                size: parent.width
                weight: 2.5
                path: "M5 12.500l4.500 4.500L19 7.500"
                colour: field.look.onAccent
            }
        }
        Plain {
            id: words
            look: field.look
            anchors.left: box.right
            anchors.leftMargin: field.look.s12
            anchors.right: parent.right
            anchors.verticalCenter: parent.verticalCenter
            text: field.label
            Accessible.ignored: true
        }
        MouseArea { anchors.fill: parent; onClicked: { field.flip(); row.forceActiveFocus() } }
    }
    Plain {
        look: field.look
        width: parent.width
        visible: text !== ""
        text: field.sentence
        color: field.wrong ? field.look.failed : field.look.quiet
        font.pixelSize: field.look.fontQuiet
    }
}
