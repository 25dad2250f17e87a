// The foot of a dialog: the safe answer, the answer that does it, and why that one may not be pressed yet.
import QtQuick

Rectangle {
    id: buttons
    required property var look
    required property var desk
    required property bool armed
    property string yes
    property string no
    property string yesKind: "main"
    // A third one, where no answer is one too: it stands first. Where there is no room closing the window does the same.
    property string later
    property bool yesOn: true
    property string why
    signal agreed()
    signal declined()
    signal putOff()
    // Where letters are large and the window narrow, the answers stand above one another and the words above them.
    readonly property bool wide: safe.implicitWidth + act.implicitWidth + look.s12 + (later !== "" ? off.implicitWidth + look.s12 : 0) <= width - 2 * look.s24
    readonly property bool beside: width - row.width - 2 * look.s24 - look.s16 > look.s48 * 2
    implicitHeight: row.height + 2 * look.s16 + (said.visible && !beside ? said.implicitHeight + look.s12 : 0)
    color: look.page

    function takeSafe() { safe.forceActiveFocus() }

    Rectangle { width: parent.width; height: buttons.look.hairline; color: buttons.look.line }
    Plain {
        id: said
        look: buttons.look
        x: buttons.look.s24
        y: buttons.beside ? row.y + (row.height - height) / 2 : buttons.look.s16
        width: buttons.beside ? row.x - x - buttons.look.s16 : buttons.width - 2 * x
        visible: text !== ""
        maximumLineCount: buttons.beside ? 2 : 4
        elide: Text.ElideRight
        text: buttons.why !== "" ? buttons.why
            : buttons.desk.waiting === 1 ? qsTr("One more question waits behind this one.")
            : buttons.desk.waiting > 1 ? qsTr("%1 more questions wait behind this one.").arg(buttons.desk.waiting) : ""
        color: buttons.look.quiet
        font.pixelSize: buttons.look.fontQuiet
    }
    Grid {
        id: row
        anchors.right: parent.right
        anchors.rightMargin: buttons.look.s24
        anchors.bottom: parent.bottom
        anchors.bottomMargin: buttons.look.s16
        columns: buttons.wide ? 3 : 1
        horizontalItemAlignment: Grid.AlignRight
        spacing: buttons.look.s12
        Press { id: off; look: buttons.look; armed: buttons.armed; visible: buttons.later !== "" && buttons.wide; text: buttons.later; onPressed: buttons.putOff() }
        Press { id: safe; look: buttons.look; armed: buttons.armed; text: buttons.no; onPressed: buttons.declined() }
        Press {
            id: act
            look: buttons.look
            armed: buttons.armed
            on: buttons.yesOn
            kind: buttons.yesKind
            text: buttons.yes
            onPressed: buttons.agreed()
        }
    }
}
