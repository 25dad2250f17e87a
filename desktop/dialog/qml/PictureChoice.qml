// Three pictures to choose one from, and another three.
import QtQuick

FocusScope {
    id: page
    required property var desk
    required property bool armed
    property var asked: ({})
    property var offers: []
    property int picked: -1
    readonly property var look: desk.look
    readonly property real wantedHeight: scroll.wanted + buttons.implicitHeight

    Component.onCompleted: { asked = desk.asked; offers = desk.proposals(); Qt.callLater(() => tiles.itemAt(0).forceActiveFocus()) }
    function settled() { scroll.note() }

    Scroll {
        id: scroll
        look: page.look
        anchors.left: parent.left
        anchors.right: parent.right
        anchors.top: parent.top
        anchors.bottom: buttons.top
        Heading { look: page.look; text: page.asked.heading ?? "" }
        Plain {
            look: page.look
            width: parent.width
            lineHeight: page.look.lineReading
            text: qsTr("Every window in which Remuda asks for a key or a folder, or whether to delete something, will show this picture and its words at the top. A window without them is not Remuda’s: close it.")
        }
        Row {
            id: row
            width: parent.width
            spacing: page.look.s12
            Accessible.role: Accessible.Grouping
            Accessible.name: page.asked.heading ?? ""
            Repeater {
                id: tiles
                model: page.offers
                Rectangle {
                    id: tile
                    required property var modelData
                    required property int index
                    readonly property bool chosen: page.picked === index
                    width: (row.width - 2 * row.spacing) / 3
                    height: drawing.height + words.implicitHeight + 2 * page.look.s16 + page.look.s12
                    radius: page.look.radiusCard
                    color: chosen ? page.look.accentGround : area.containsMouse ? page.look.hover : page.look.raised
                    border.width: chosen ? page.look.focusLine : page.look.hairline
                    border.color: chosen ? page.look.accent : page.look.border
                    activeFocusOnTab: true
                    Accessible.role: Accessible.RadioButton
                    Accessible.name: modelData.words
                    Accessible.checkable: true
                    Accessible.checked: chosen
                    Accessible.focusable: true
                    Accessible.onPressAction: page.picked = index
                    Keys.onPressed: (event) => {
                        if (event.key === Qt.Key_Left || event.key === Qt.Key_Right) {
                            const next = (index + (event.key === Qt.Key_Right ? 1 : 2)) % 3
                            tiles.itemAt(next).forceActiveFocus()
                            event.accepted = true
                        } else if (event.key === Qt.Key_Return || event.key === Qt.Key_Enter || event.key === Qt.Key_Space) {
                            if (page.armed) page.picked = index
                            event.accepted = true
                        }
                    }
                    Rectangle {
                        anchors.fill: parent
                        anchors.margins: -page.look.s4
                        radius: tile.radius + page.look.s4
                        color: "transparent"
                        border.width: page.look.focusLine
                        border.color: page.look.focus
                        visible: tile.activeFocus
                    }
                    Strokes {
                        id: drawing
                        anchors.horizontalCenter: parent.horizontalCenter
                        y: page.look.s16
                        size: page.look.s48 + page.look.s16
                        weight: 1.3
                        path: tile.modelData.path
                        colour: tile.modelData.colour
                    }
                    Plain {
                        id: words
                        look: page.look
                        anchors.top: drawing.bottom
                        anchors.topMargin: page.look.s12
                        width: parent.width
                        horizontalAlignment: Text.AlignHCenter
                        text: tile.modelData.words
                        font.weight: page.look.medium
                        Accessible.ignored: true
                    }
                    MouseArea {
                        id: area
                        anchors.fill: parent
                        hoverEnabled: true
                        onClicked: if (page.armed) { page.picked = tile.index; tile.forceActiveFocus() }
                    }
                }
            }
        }
        Small {
            look: page.look
            x: -page.look.s8
            text: qsTr("Another three")
            onPressed: { page.picked = -1; page.offers = page.desk.proposals() }
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
        yesOn: page.picked >= 0
        why: page.picked < 0 ? qsTr("Press the one you will recognise.") : ""
        onAgreed: page.desk.choose(page.offers[page.picked].words)
        onDeclined: page.desk.decline()
    }
}
