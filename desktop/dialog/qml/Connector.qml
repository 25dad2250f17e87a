// Name, address and key of a connector.
import QtQuick

FocusScope {
    id: page
    required property var desk
    required property bool armed
    property var asked: ({})
    property var state_: desk.check("", "", "")
    property bool pressed: false
    readonly property var look: desk.look
    readonly property real wantedHeight: scroll.wanted + buttons.implicitHeight

    Component.onCompleted: {
        asked = desk.asked
        name.set(asked.name)
        address.set(asked.address)
        look_again()
        if (asked.name === "") name.take()
        else if (asked.address === "") address.take()
        else key.take()
    }
    function look_again() { state_ = desk.check(name.text, address.text, key.text) }
    function settled() { scroll.note() }
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
        if (state_.complete) desk.save(name.text, address.text, key.text)
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
        Rectangle {
            width: parent.width
            visible: (page.asked.problem ?? "") !== ""
            height: visible ? problem.implicitHeight + 2 * page.look.s12 : 0
            radius: page.look.radius
            color: page.look.failedGround
            border.width: page.look.hairline
            border.color: page.look.failed
            Plain {
                id: problem
                look: page.look
                x: page.look.s16
                y: page.look.s12
                width: parent.width - 2 * page.look.s16
                text: page.asked.problem ?? ""
            }
        }
        Plain {
            look: page.look
            width: parent.width
            text: qsTr("A server that speaks the OpenAI chat API: a provider, a gateway, or a model server of your own.")
            color: page.look.quiet
            lineHeight: page.look.lineReading
        }
        Column {
            width: parent.width
            spacing: page.look.s8
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
                onEdited: page.look_again()
                onEntered: if (page.armed) page.save()
            }
        }
        Plain {
            look: page.look
            width: parent.width
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
