// One line to type into, its label above, one sentence below.
import QtQuick

Column {
    id: field
    required property var look
    required property string label
    property string hint
    property string sentence
    property bool wrong: false
    property bool secret: false
    property bool pasteable: false
    property bool fixed: false
    property alias text: input.text
    property alias longest: input.maximumLength
    property bool shown: false
    property bool touched: false
    property bool tight: false
    signal edited()
    signal entered()
    signal took(Item item)
    spacing: look.s4

    function take() { input.forceActiveFocus() }
    function wipe() { input.clear() }
    // A long value shows its beginning until it is typed on.
    function set(value) { input.text = value; input.cursorPosition = 0 }

    Plain {
        look: field.look
        width: parent.width
        text: field.label
        font.pixelSize: field.look.fontQuiet
        font.weight: field.look.medium
    }
    Rectangle {
        width: parent.width
        height: field.look.control + field.look.s8
        radius: field.look.radius
        color: field.fixed ? field.look.sunken : field.look.raised
        border.width: input.activeFocus ? field.look.focusLine : field.look.hairline
        border.color: input.activeFocus ? field.look.focus : field.wrong ? field.look.failed : field.look.border
        TextInput {
            id: input
            anchors.left: parent.left
            anchors.leftMargin: field.look.s12
            anchors.right: buttons.left
            anchors.rightMargin: field.look.s8
            anchors.verticalCenter: parent.verticalCenter
            clip: true
            readOnly: field.fixed
            activeFocusOnTab: true
            color: field.look.text
            selectionColor: field.look.selection
            selectedTextColor: field.look.onSelection
            font.family: field.secret || field.pasteable ? field.look.fontCode : field.look.fontText
            font.pixelSize: field.secret || field.pasteable ? field.look.fontQuiet + 1 : field.look.fontBody
            font.features: ({ "liga": 0, "calt": 0, "dlig": 0 })
            echoMode: field.secret && !field.shown ? TextInput.Password : TextInput.Normal
            passwordCharacter: "•"
            passwordMaskDelay: 0
            // A mouse selection goes to the primary selection, which every window may read.
            selectByMouse: !field.secret
            inputMethodHints: field.secret
                ? Qt.ImhSensitiveData | Qt.ImhNoPredictiveText | Qt.ImhNoAutoUppercase | Qt.ImhHiddenText
                : field.pasteable ? Qt.ImhUrlCharactersOnly | Qt.ImhNoPredictiveText | Qt.ImhNoAutoUppercase : Qt.ImhNone
            cursorDelegate: Rectangle {
                width: field.look.caret
                color: field.look.accent
                visible: input.activeFocus && !field.fixed
            }
            onTextEdited: { field.touched = true; field.edited() }
            onActiveFocusChanged: {
                if (activeFocus) {
                    if (!field.touched) input.cursorPosition = input.length
                    field.took(field)
                }
                else if (length > 0) field.touched = true
            }
            onAccepted: field.entered()
            Accessible.role: Accessible.EditableText
            Accessible.name: field.label
            Accessible.description: field.sentence
            Accessible.passwordEdit: field.secret
            Plain {
                look: field.look
                width: parent.width
                anchors.verticalCenter: parent.verticalCenter
                visible: input.length === 0 && input.preeditText === ""
                text: field.hint
                wrapMode: Text.NoWrap
                elide: Text.ElideRight
                color: field.look.quiet
                font: input.font
                Accessible.ignored: true
            }
        }
        Row {
            id: buttons
            anchors.right: parent.right
            anchors.rightMargin: field.look.s4
            anchors.verticalCenter: parent.verticalCenter
            Small {
                look: field.look
                visible: field.pasteable || field.secret
                text: qsTr("Paste")
                onPressed: { input.selectAll(); input.paste(); input.forceActiveFocus(); field.touched = true; field.edited() }
            }
            Small {
                look: field.look
                visible: field.secret
                checkable: true
                checked: field.shown
                text: field.shown ? qsTr("Hide") : qsTr("Show")
                onPressed: { field.shown = !field.shown; input.forceActiveFocus() }
            }
        }
    }
    Plain {
        look: field.look
        width: parent.width
        // In a column of fields of one height nothing moves when a sentence comes.
        visible: !field.tight || field.sentence !== ""
        text: field.sentence === "" ? " " : field.sentence
        color: field.wrong ? field.look.failed : field.look.quiet
        font.pixelSize: field.look.fontQuiet
        Accessible.ignored: field.sentence === ""
    }
}
