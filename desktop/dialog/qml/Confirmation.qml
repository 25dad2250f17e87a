// Delete or remove: what exactly, with what effect. Focus is on the answer that changes nothing.
import QtQuick

FocusScope {
    id: page
    required property var desk
    required property bool armed
    property var asked: ({})
    readonly property var look: desk.look
    readonly property real wantedHeight: scroll.wanted + buttons.implicitHeight

    Component.onCompleted: { asked = desk.asked; buttons.takeSafe() }
    Keys.onPressed: (event) => {
        const page_ = scroll.height * 0.9
        const step = { [Qt.Key_Down]: look.s48, [Qt.Key_Up]: -look.s48, [Qt.Key_PageDown]: page_, [Qt.Key_PageUp]: -page_,
                       [Qt.Key_Home]: -1e9, [Qt.Key_End]: 1e9 }[event.key]
        if (step !== undefined) { scroll.by(step); event.accepted = true }
    }

    Scroll {
        id: scroll
        look: page.look
        anchors.left: parent.left
        anchors.right: parent.right
        anchors.top: parent.top
        anchors.bottom: buttons.top
        Heading { look: page.look; text: page.asked.heading ?? ""; askedBy: page.asked.asked_by ?? "" }
        About { look: page.look; title: page.asked.title ?? ""; detail: page.asked.subtitle ?? "" }
        Repeater {
            model: page.asked.parts ?? []
            Column {
                id: part
                required property var modelData
                width: parent.width
                visible: modelData.lines.length > 0
                spacing: page.look.s4
                Plain { look: page.look; width: parent.width; text: part.modelData.label; color: page.look.quiet; font.pixelSize: page.look.fontQuiet; font.weight: page.look.medium }
                Repeater {
                    model: part.modelData.lines
                    Plain { required property string modelData; look: page.look; width: part.width; text: modelData; lineHeight: page.look.lineReading }
                }
            }
        }
        Plain { look: page.look; width: parent.width; text: page.asked.last ?? ""; visible: text !== ""; color: page.look.quiet; font.pixelSize: page.look.fontQuiet }
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
        yesKind: "danger"
        yesOn: scroll.readWhole
        why: scroll.readWhole ? "" : qsTr("There is more below; scroll to its end first.")
        onAgreed: page.desk.agree()
        onDeclined: page.desk.decline()
    }
    function settled() { scroll.note() }
}
