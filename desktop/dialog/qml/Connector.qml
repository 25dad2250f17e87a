// What a connector leads to, its name, address and key.
import QtQuick

FocusScope {
    id: page
    required property var desk
    required property bool armed
    property var asked: ({})
    property var state_: desk.check("", "", "", "")
    property bool pressed: false
    property string leads: ""
    property bool choosing: true
    readonly property var look: desk.look
    readonly property real wantedHeight: scroll.wanted + buttons.implicitHeight

    Component.onCompleted: {
        asked = desk.asked
        leads = asked.leads
        choosing = leads === ""
        const usual = desk.proposal(leads)
        name.set(asked.name !== "" ? asked.name : usual.name)
        address.set(asked.address !== "" ? asked.address : usual.address)
        look_again()
        Qt.callLater(() => choosing ? kinds.take() : take())
    }
    function look_again() { state_ = desk.check(leads, name.text, address.text, key.text) }
    // The first field that waits to be filled in.
    function take() {
        if (!name.fixed && name.text === "") name.take()
        else if (address.text === "") address.take()
        else key.take()
    }
    // What stands in name and address stays if it was typed, and changes if it was proposed.
    function lead(kind) {
        const before = desk.proposal(leads), usual = desk.proposal(kind)
        // Fields that only now appear have nothing wrong yet.
        if (leads === "") pressed = false
        leads = kind
        if (name.text === "" || name.text === before.name) name.set(usual.name)
        if (address.text === "" || address.text === before.address) address.set(usual.address)
        look_again()
    }
    readonly property var kind: (asked.kinds ?? []).find((one) => one.value === leads)
    function settled() { scroll.note() }
    function arranged() { if (scroll.at !== null) scroll.reveal(scroll.at) }
    // A sentence shows once it helps: not before something was typed, not while it may still become right.
    function says(part) {
        if (part.state === "wrong") return part.sentence
        if (part.state === "partial" || part.state === "empty") return page.pressed ? part.sentence : ""
        return part.sentence
    }
    function isWrong(part) { return part.state === "wrong" || (page.pressed && part.state !== "good") }
    function save() {
        pressed = true
        look_again()
        if (state_.complete) desk.save(leads, name.text, address.text, key.text)
        else if (leads === "") kinds.take()
        else if (state_.name.state !== "good") name.take()
        else if (state_.address.state !== "good") address.take()
        else key.take()
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
        Options {
            id: kinds
            width: parent.width
            visible: page.choosing
            look: page.look
            label: qsTr("What it leads to")
            columns: Math.max(1, Math.min(3, Math.floor(width / (page.look.s48 * 3 + page.look.s24))))
            rows: page.asked.kinds ?? []
            chosen: page.leads
            wrong: page.pressed && page.leads === ""
            sentence: wrong ? qsTr("Choose what it leads to.") : ""
            onEdited: page.lead(chosen)
            onEntered: page.take()
            // Who chose with the pointer goes on at the keyboard.
            onClicked: Qt.callLater(page.take)
            onTook: (at) => scroll.reveal(at)
        }
        Item {
            width: parent.width
            height: other.implicitHeight
            visible: !page.choosing && page.kind !== undefined
            Plain {
                look: page.look
                anchors.left: parent.left
                anchors.right: other.left
                anchors.verticalCenter: parent.verticalCenter
                wrapMode: Text.NoWrap
                elide: Text.ElideRight
                text: page.kind === undefined ? "" : qsTr("%1 · %2").arg(page.kind.label).arg(page.kind.means)
                color: page.look.quiet
            }
            Small {
                id: other
                look: page.look
                anchors.right: parent.right
                visible: !(page.asked.name_fixed ?? false)
                text: qsTr("Another kind")
                onPressed: { page.choosing = true; Qt.callLater(kinds.take) }
            }
        }
        Column {
            width: parent.width
            spacing: page.look.s8
            visible: page.leads !== ""
            Field {
                id: name
                width: parent.width
                look: page.look
                label: qsTr("Name")
                hint: qsTr("My server")
                longest: 256
                fixed: page.asked.name_fixed ?? false
                sentence: page.says(page.state_.name)
                wrong: page.isWrong(page.state_.name)
                onTook: (at) => scroll.reveal(at)
                onEdited: page.look_again()
                onEntered: address.take()
            }
            Field {
                id: address
                width: parent.width
                look: page.look
                label: qsTr("Address")
                hint: "https://api.example.com/v1"
                longest: 2048
                pasteable: true
                sentence: page.says(page.state_.address)
                wrong: page.isWrong(page.state_.address)
                onTook: (at) => scroll.reveal(at)
                onEdited: page.look_again()
                onEntered: key.take()
            }
            Field {
                id: key
                width: parent.width
                look: page.look
                label: page.state_.loopback ? qsTr("Key, if the server asks for one") : qsTr("Key")
                longest: 8192
                secret: true
                sentence: page.says(page.state_.key)
                wrong: page.isWrong(page.state_.key)
                onTook: (at) => scroll.reveal(at)
                onEdited: page.look_again()
                onEntered: if (page.armed) page.save()
            }
        }
        Plain {
            look: page.look
            width: parent.width
            visible: page.leads !== ""
            text: page.state_.effect === "" ? qsTr("The key goes into this computer’s key store, and with your messages to this server only.")
                                             : page.state_.effect
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
