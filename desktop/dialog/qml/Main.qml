// The window of a trusted dialog: bar, one question, buttons. Closing it and Escape are "no".
import QtQuick
import QtQuick.Window

Window {
    id: window
    required property var desk
    readonly property var look: desk.look
    readonly property var pages: ({ connector: "Connector.qml", form: "Form.qml", delete: "Confirmation.qml", remove: "Confirmation.qml", picture: "PictureChoice.qml", approval: "Approval.qml" })
    property bool armed: false
    property bool drawn: false
    property bool due: false

    // Never higher than the screen, whatever is asked; more of it is reached by scrolling.
    readonly property real most: Math.max(look.s48 * 6, Screen.desktopAvailableHeight - look.s48)
    width: Math.min(look.form, Math.max(360, Screen.desktopAvailableWidth - look.s32))
    readonly property bool typed: desk.expects === "connector" || desk.expects === "form"
    height: Math.min(most, typed || desk.expects === "approval" ? look.s48 * 12 : look.s48 * 9)
    minimumWidth: Math.min(width, look.s48 * 7)
    minimumHeight: Math.min(height, look.s48 * 6)
    color: look.page
    title: desk.asked.heading ? qsTr("%1 – Remuda").arg(desk.asked.heading) : "Remuda"
    flags: typed ? Qt.Dialog : Qt.Dialog | Qt.WindowStaysOnTopHint

    onClosing: (close) => { close.accepted = false; desk.decline() }
    onActiveChanged: if (active) window.guard()
    onFrameSwapped: if (due) {
        due = false
        timer.restart()
        // Only now is everything where it belongs.
        if (loader.item.arranged !== undefined) loader.item.arranged()
    }

    // Presses count only after the question has been on screen for a while, again after each activation:
    // what was meant for another window does not land here.
    function guard() {
        armed = false
        timer.stop()
        if (drawn) { due = true; window.update() }
    }
    Timer {
        id: timer
        interval: window.desk.guardMs
        onTriggered: {
            window.armed = true
            loader.item.settled()
            window.desk.noteReady()
        }
    }

    Connections {
        target: window.desk
        function onAskedChanged() { window.renew() }
        function onFronted() { window.raise(); window.requestActivate() }
    }
    function renew() {
        drawn = false
        armed = false
        timer.stop()
        const kind = desk.asked.kind
        if (kind === undefined) { loader.source = ""; window.hide(); return }
        loader.setSource(pages[kind], { desk: desk, armed: Qt.binding(() => window.armed) })
        Qt.callLater(window.settle)
    }
    function settle() {
        if (loader.item === null) return
        fit()
        drawn = true
        window.show()
        window.raise()
        window.requestActivate()
        loader.forceActiveFocus()
        guard()
    }
    // As high as what is asked needs: exactly, until presses count; later it only grows, so nothing moves under the eye.
    function fit() {
        const wanted = Math.min(most, Math.ceil(bar.implicitHeight + loader.item.wantedHeight))
        if (wanted > height || !armed) height = Math.max(minimumHeight, wanted)
    }
    Connections {
        target: loader.item
        function onWantedHeightChanged() { window.fit() }
    }

    Bar {
        id: bar
        desk: window.desk
        width: parent.width
    }
    Shortcut { sequence: "Esc"; onActivated: window.desk.decline() }
    Loader {
        id: loader
        focus: true
        anchors.left: parent.left
        anchors.right: parent.right
        anchors.top: bar.bottom
        anchors.bottom: parent.bottom
    }
}
