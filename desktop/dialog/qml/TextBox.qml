// Several lines to type into, scrolling inside; Tab leaves it, Return is a line break.
import QtQuick

Column {
    id: field
    required property var look
    required property string label
    property string hint
    property string sentence
    property bool wrong: false
    property alias text: input.text
    property bool touched: false
    property bool setting: false
    signal edited()
    signal entered()
    signal took(Item item)
    spacing: look.s4
    function take() { input.forceActiveFocus() }
    function set(value) { setting = true; input.text = value; input.cursorPosition = 0; setting = false }

    Plain {
        look: field.look
        width: parent.width
        text: field.label
        font.pixelSize: field.look.fontQuiet
        font.weight: field.look.medium
    }
    Rectangle {
        width: parent.width
        height: field.look.s48 * 3 + field.look.s16
        radius: field.look.radius
        color: field.look.raised
        border.width: input.activeFocus ? field.look.focusLine : field.look.hairline
        border.color: input.activeFocus ? field.look.focus : field.wrong ? field.look.failed : field.look.border
        Flickable {
            id: view
            anchors.fill: parent
            anchors.margins: field.look.s8
            anchors.leftMargin: field.look.s12
            contentWidth: width
            contentHeight: input.height
            clip: true
            boundsBehavior: Flickable.StopAtBounds
            flickableDirection: Flickable.VerticalFlick
            function follow(place) {
                if (place.y < contentY) contentY = place.y
                else if (place.y + place.height > contentY + height) contentY = place.y + place.height - height
            }
            TextEdit {
                id: input
                width: view.width - field.look.s8
                height: Math.max(implicitHeight, view.height)
                textFormat: TextEdit.PlainText
                wrapMode: TextEdit.Wrap
                activeFocusOnTab: true
                selectByMouse: true
                color: field.look.text
                selectionColor: field.look.selection
                selectedTextColor: field.look.onSelection
                font.family: field.look.fontText
                font.pixelSize: field.look.fontBody
                font.features: ({ "liga": 0, "calt": 0, "dlig": 0 })
                cursorDelegate: Rectangle {
                    width: field.look.caret
                    color: field.look.accent
                    visible: input.activeFocus
                }
                onTextChanged: if (!field.setting) { field.touched = true; field.edited() }
                onCursorRectangleChanged: view.follow(cursorRectangle)
                onActiveFocusChanged: if (activeFocus) field.took(field)
                Accessible.role: Accessible.EditableText
                Accessible.name: field.label
                Accessible.description: field.sentence
                Accessible.multiLine: true
                Keys.onPressed: (event) => {
                    if (event.key === Qt.Key_Tab) nextItemInFocusChain(true).forceActiveFocus()
                    else if (event.key === Qt.Key_Backtab) nextItemInFocusChain(false).forceActiveFocus()
                    else if ((event.key === Qt.Key_Return || event.key === Qt.Key_Enter) && (event.modifiers & Qt.ControlModifier)) field.entered()
                    else return
                    event.accepted = true
                }
                Plain {
                    look: field.look
                    width: parent.width
                    visible: input.length === 0 && input.preeditText === ""
                    text: field.hint
                    color: field.look.quiet
                    Accessible.ignored: true
                }
            }
        }
        Rectangle {
            visible: view.contentHeight > view.height
            width: field.look.bar
            radius: field.look.radiusBar
            color: field.look.border
            x: parent.width - width - field.look.s4
            height: Math.max(field.look.barLeast, view.height * view.height / view.contentHeight)
            y: view.y + (view.height - height) * view.contentY / Math.max(1, view.contentHeight - view.height)
        }
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
