// Something to fill in, field under field. Return leads on, and from the last field it is the button.
import QtQuick

FocusScope {
    id: page
    required property var desk
    required property bool armed
    property var asked: ({})
    property var values: ({})
    property var found: ({ fields: {}, complete: false })
    property bool pressed: false
    readonly property var look: desk.look
    readonly property real wantedHeight: scroll.wanted + buttons.implicitHeight

    Component.onCompleted: {
        const given = {}
        for (const field of desk.asked.fields) given[field.id] = field.value
        values = given
        found = desk.checkForm(values)
        asked = desk.asked
        Qt.callLater(first)
    }
    function settled() { scroll.note() }
    function arranged() { if (scroll.at !== null) scroll.reveal(scroll.at) }
    function items() {
        const all = []
        for (let place = 0; place < repeater.count; place++) {
            const item = repeater.itemAt(place)
            if (item !== null && item.found.asked) all.push(item)
        }
        return all
    }
    // The field something is wrong with, or the first.
    function first() {
        const all = items()
        const at = all.find((item) => item.problem !== "") ?? all[0]
        if (at !== undefined) at.take()
    }
    function set(id, value) {
        const now = Object.assign({}, values)
        now[id] = value
        values = now
        found = desk.checkForm(now)
    }
    function on_from(item) {
        const all = items()
        const next = all[all.indexOf(item) + 1]
        if (next !== undefined) next.take()
        else if (page.armed) save()
    }
    function save() {
        pressed = true
        found = desk.checkForm(values)
        if (found.complete) { desk.fill(values); return }
        const at = items().find((item) => item.found.state !== "good")
        if (at !== undefined) at.take()
    }

    Scroll {
        id: scroll
        look: page.look
        anchors.left: parent.left
        anchors.right: parent.right
        anchors.top: parent.top
        anchors.bottom: buttons.top
        Heading { look: page.look; text: page.asked.heading ?? ""; askedBy: page.asked.asked_by ?? "" }
        Problem { look: page.look; text: page.asked.problem ?? "" }
        Plain {
            look: page.look
            width: parent.width
            visible: text !== ""
            text: page.asked.lead ?? ""
            color: page.look.quiet
            lineHeight: page.look.lineReading
        }
        About { look: page.look; title: page.asked.about ?? ""; detail: page.asked.detail ?? "" }
        Column {
            width: parent.width
            spacing: page.look.s16
            Repeater {
                id: repeater
                model: page.asked.fields ?? []
                FormItem {
                    required property var modelData
                    look: page.look
                    field: modelData
                    found: page.found.fields[modelData.id] ?? ({ asked: false, state: "good", sentence: "" })
                    pressed: page.pressed
                    onEdited: (value) => page.set(modelData.id, value)
                    onEntered: page.on_from(this)
                    onTook: (at) => scroll.reveal(at)
                }
            }
        }
        Plain {
            look: page.look
            width: parent.width
            visible: text !== ""
            text: page.asked.effect ?? ""
            lineHeight: page.look.lineReading
        }
    }
    Buttons {
        id: buttons
        look: page.look
        desk: page.desk
        armed: page.armed
        anchors.left: parent.left
        anchors.right: parent.right
        anchors.bottom: parent.bottom
        yes: page.asked.yes ?? ""
        no: page.asked.no ?? ""
        onAgreed: page.save()
        onDeclined: page.desk.decline()
    }
}
