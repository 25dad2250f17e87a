// A call that waits: all of it, what it does, and for how long a yes holds. Focus is on the answer that does nothing.
import QtQuick

FocusScope {
    id: page
    required property var desk
    required property bool armed
    property var asked: ({})
    property string always: ""
    property var where: ({})
    property var also: []
    property var rule: ({ fields: {}, complete: true, words: "" })
    readonly property var look: desk.look
    readonly property bool can: (asked.refusable ?? "") === ""
    readonly property real wantedHeight: scroll.wanted + buttons.implicitHeight

    Component.onCompleted: {
        const given = {}
        for (const one of desk.asked.conditions) if (one.editable) given[one.argument] = one.value
        where = given
        asked = desk.asked
        buttons.takeSafe()
    }
    function settled() { scroll.note() }
    // What is saved for ever has to be read as well.
    function renew() {
        rule = desk.checkRule(always, where, also)
        scroll.readWhole = false
        Qt.callLater(scroll.note)
    }
    function set(argument, value) {
        const now = Object.assign({}, where)
        now[argument] = value
        where = now
        renew()
    }
    Keys.onPressed: (event) => {
        const page_ = scroll.height * 0.9
        const step = { [Qt.Key_Down]: look.s48, [Qt.Key_Up]: -look.s48, [Qt.Key_PageDown]: page_, [Qt.Key_PageUp]: -page_,
                       [Qt.Key_Home]: -1e9, [Qt.Key_End]: 1e9 }[event.key]
        if (step !== undefined) { scroll.by(step); event.accepted = true }
    }

    component Label: Plain {
        look: page.look
        width: parent ? parent.width : 0
        color: page.look.quiet
        font.pixelSize: page.look.fontQuiet
        font.weight: page.look.medium
    }
    component Words: Plain {
        look: page.look
        width: parent ? parent.width : 0
        visible: text !== ""
        lineHeight: page.look.lineReading
    }

    Scroll {
        id: scroll
        look: page.look
        anchors.left: parent.left
        anchors.right: parent.right
        anchors.top: parent.top
        anchors.bottom: buttons.top
        Heading { look: page.look; text: page.asked.heading ?? ""; askedBy: page.asked.asked_by ?? "" }
        Problem { look: page.look; text: page.asked.refusable ?? "" }
        Words { text: page.asked.effect ?? ""; font.weight: page.look.medium }
        // Who would do it, as whom, for which conversation.
        Grid {
            id: facts
            width: parent.width
            readonly property bool wide: width > page.look.s48 * 8
            columns: wide ? 2 : 1
            columnSpacing: page.look.s16
            rowSpacing: page.look.s4
            Repeater {
                model: page.asked.facts ?? []
                Plain {
                    required property var modelData
                    look: page.look
                    width: !facts.wide ? facts.width : modelData.label ? page.look.s48 * 2.5 : facts.width - page.look.s48 * 2.5 - facts.columnSpacing
                    text: modelData.text
                    color: modelData.label ? page.look.quiet : page.look.text
                    font.weight: modelData.label ? page.look.medium : Font.Normal
                    font.pixelSize: page.look.fontQuiet
                }
            }
        }
        Repeater {
            model: page.asked.parts ?? []
            Column {
                id: part
                required property var modelData
                width: parent.width
                spacing: page.look.s4
                Label { text: part.modelData.about === "" ? part.modelData.name : qsTr("%1 · %2").arg(part.modelData.name).arg(part.modelData.about) }
                Rectangle {
                    width: parent.width
                    height: lines.implicitHeight + 2 * page.look.s12
                    radius: page.look.radius
                    color: page.look.sunken
                    border.width: page.look.hairline
                    border.color: page.look.line
                    Column {
                        id: lines
                        x: page.look.s12
                        y: page.look.s12
                        width: parent.width - 2 * page.look.s12
                        Repeater {
                            model: part.modelData.pieces
                            Plain {
                                required property string modelData
                                look: page.look
                                width: lines.width
                                text: modelData
                                font.family: page.look.fontCode
                                font.pixelSize: page.look.fontQuiet
                                lineHeight: page.look.lineReading
                            }
                        }
                    }
                }
            }
        }
        Label { visible: (page.asked.parts ?? []).length === 0; text: qsTr("It has no arguments.") }
        Options {
            id: offers
            width: parent.width
            visible: (page.asked.offers ?? []).length > 0
            look: page.look
            label: qsTr("If you approve, this holds")
            rows: page.asked.offers ?? []
            chosen: page.always
            onEdited: { page.always = chosen; page.renew() }
            onEntered: buttons.takeSafe()
            onTook: (at) => scroll.reveal(at)
        }
        Repeater {
            model: page.always === "widest" ? page.asked.conditions.filter((one) => one.editable) : []
            Field {
                required property var modelData
                readonly property var state_: page.rule.fields[modelData.argument] ?? ({ state: "good", sentence: "" })
                width: parent.width
                look: page.look
                label: qsTr("%1, narrower if you like").arg(modelData.label)
                pasteable: true
                tight: true
                longest: 10000
                sentence: state_.sentence
                wrong: state_.state !== "good"
                onEdited: page.set(modelData.argument, text)
                onTook: (at) => scroll.reveal(at)
                Component.onCompleted: set(modelData.value)
            }
        }
        Options {
            width: parent.width
            visible: page.always === "widest" && (page.asked.also ?? []).length > 0
            look: page.look
            label: qsTr("And only if these are as they are in this call")
            rows: page.asked.also ?? []
            several: true
            onEdited: { page.also = checked; page.renew() }
            onTook: (at) => scroll.reveal(at)
        }
        Column {
            width: parent.width
            visible: page.rule.words !== ""
            spacing: page.look.s4
            Label { text: qsTr("From now on these are done without asking") }
            Rectangle {
                width: parent.width
                height: saved.implicitHeight + 2 * page.look.s12
                radius: page.look.radius
                color: page.look.waitingGround
                border.width: page.look.hairline
                border.color: page.look.waiting
                Words {
                    id: saved
                    x: page.look.s12
                    y: page.look.s12
                    width: parent.width - 2 * page.look.s12
                    text: page.rule.words
                    font.pixelSize: page.look.fontQuiet
                }
            }
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
        later: page.asked.later ?? ""
        no: page.asked.no ?? ""
        yes: page.always === "" ? page.asked.yes ?? "" : qsTr("Approve always")
        yesOn: page.can && scroll.readWhole && page.rule.complete
        why: !page.can ? qsTr("This can only be denied.")
            : !scroll.readWhole ? qsTr("There is more below; scroll to its end first.")
            : !page.rule.complete ? qsTr("Not narrower than offered.") : ""
        onAgreed: page.desk.decide(true, page.always, page.where, page.also)
        onDeclined: page.desk.decide(false, "", {}, [])
        onPutOff: page.desk.decline()
    }
}
