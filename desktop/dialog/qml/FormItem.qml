// One field of a form, of whatever kind: its value, its sentence, and the moves between fields.
import QtQuick

Loader {
    id: slot
    required property var look
    required property var field
    required property var found
    property bool pressed: false
    property string problem: field.problem
    signal edited(var value)
    signal entered()
    signal took(Item at)
    width: parent ? parent.width : 0
    visible: found.asked
    active: true

    readonly property bool wrong: problem !== "" || found.state === "wrong" || (pressed && found.state !== "good")
    // A sentence shows once it helps: a problem first, then what is wrong with what stands there, then what it is for.
    readonly property string sentence: problem !== "" ? problem
        : found.state === "good" ? (found.sentence !== "" ? found.sentence : field.help)
        : found.state === "wrong" || pressed ? found.sentence : field.help
    function take() { if (slot.item !== null) slot.item.take() }
    function note(value) { problem = ""; edited(value) }

    sourceComponent: ({ line: line, secret: line, path: line, text: box, choice: options, checks: options, picker: picker, switch: toggle })[field.kind]

    Component {
        id: line
        Field {
            width: slot.width
            look: slot.look
            label: slot.field.label
            hint: slot.field.hint
            longest: slot.field.kind === "secret" ? 8192 : 4096
            secret: slot.field.kind === "secret"
            pasteable: slot.field.kind === "path"
            tight: true
            sentence: slot.sentence
            wrong: slot.wrong
            onEdited: slot.note(text)
            onEntered: slot.entered()
            onTook: (at) => slot.took(at)
            Component.onCompleted: set(slot.field.value)
        }
    }
    Component {
        id: box
        TextBox {
            width: slot.width
            look: slot.look
            label: slot.field.label
            hint: slot.field.hint
            sentence: slot.sentence
            wrong: slot.wrong
            onEdited: slot.note(text)
            onEntered: slot.entered()
            onTook: (at) => slot.took(at)
            Component.onCompleted: set(slot.field.value)
        }
    }
    Component {
        id: options
        Options {
            width: slot.width
            look: slot.look
            label: slot.field.label
            rows: slot.field.options
            // Single words stand beside each other, four of them in two lines.
            columns: rows.length < 3 || rows.some((row) => row.means !== "") ? 1
                : Math.max(1, Math.min(rows.length === 4 ? 2 : 3, Math.floor(width / (slot.look.s48 * 3))))
            several: slot.field.kind === "checks"
            sentence: slot.sentence
            wrong: slot.wrong
            onEdited: slot.note(several ? checked : chosen)
            onEntered: slot.entered()
            onTook: (at) => slot.took(at)
            Component.onCompleted: { if (several) checked = slot.field.value; else chosen = slot.field.value }
        }
    }
    Component {
        id: picker
        Picker {
            width: slot.width
            look: slot.look
            label: slot.field.label
            rows: slot.field.options
            hint: slot.field.hint
            sentence: slot.sentence
            wrong: slot.wrong
            onEdited: slot.note(chosen)
            onEntered: slot.entered()
            onTook: (at) => slot.took(at)
            Component.onCompleted: chosen = slot.field.value
        }
    }
    Component {
        id: toggle
        Switch {
            width: slot.width
            look: slot.look
            label: slot.field.label
            sentence: slot.sentence
            wrong: slot.wrong
            onEdited: slot.note(on)
            onEntered: slot.entered()
            onTook: (at) => slot.took(at)
            Component.onCompleted: on = slot.field.value
        }
    }
}
