import QtQuick
import QtQuick.Templates as T

Item {
    id: root

    property real most: 0
    readonly property Item first: queued.visible ? queued.first : doubt.visible ? doubt.first : folder.visible ? folder : edit
    readonly property string place: now.folder
    readonly property bool composing: edit.preeditText.length > 0 || edit.inputMethodComposing

    function take() {
        edit.forceActiveFocus();
    }
    function fill(text) {
        edit.text = text;
        edit.cursorPosition = edit.length;
        remuda.typing(edit.text);
        take();
    }
    function send() {
        if (!composing)
            remuda.send(edit.text);
    }
    function sendLater() {
        if (!composing)
            remuda.sendLater(edit.text);
    }

    // With the folder chosen the message is what comes next.
    onPlaceChanged: if (place.length > 0 && folder.focus) take()
    implicitHeight: box.y + box.height + line.height + theme.s4

    QueueList {
        id: queued
        width: parent.width
        most: root.most
        onEnded: root.take()
    }
    Doubt {
        id: doubt
        y: queued.visible ? queued.height + theme.s8 : 0
        width: parent.width
    }
    FolderChip {
        id: folder
        y: doubt.visible ? doubt.y + doubt.height + theme.s8 : doubt.y
        most: parent.width
        width: Math.min(implicitWidth, parent.width)
    }
    Rectangle {
        id: box
        y: folder.visible ? folder.y + folder.height + theme.s8 : folder.y
        width: parent.width
        height: Math.max(theme.control + theme.s8, Math.min(edit.implicitHeight, Math.max(theme.control, root.most))) + theme.s8
        radius: theme.radiusCard
        color: theme.raised
        border.width: edit.activeFocus ? theme.focusLine : theme.hairline
        border.color: edit.activeFocus ? theme.focus : theme.line

        Flickable {
            id: flick
            anchors.fill: parent
            anchors.topMargin: theme.s4
            anchors.bottomMargin: theme.s4
            anchors.rightMargin: buttons.width + 2 * theme.s8
            contentWidth: width
            contentHeight: edit.height
            boundsBehavior: Flickable.StopAtBounds
            clip: true
            T.ScrollBar.vertical: Bar {}

            function reveal(r) {
                if (contentY >= r.y)
                    contentY = Math.max(0, r.y - edit.topPadding);
                else if (contentY + height <= r.y + r.height)
                    contentY = r.y + r.height - height + edit.bottomPadding;
            }

            TextEdit {
                id: edit
                objectName: "composer"
                width: flick.width
                height: Math.max(implicitHeight, flick.height)
                leftPadding: theme.s16
                rightPadding: theme.s8
                topPadding: theme.s8
                bottomPadding: theme.s8
                wrapMode: TextEdit.Wrap
                textFormat: TextEdit.PlainText
                color: theme.text
                selectionColor: theme.selection
                selectedTextColor: theme.onSelection
                font.family: theme.fontText
                font.pixelSize: theme.fontBody
                selectByMouse: true
                activeFocusOnTab: true
                focus: true
                cursorDelegate: Caret { field: edit }
                Accessible.role: Accessible.EditableText
                Accessible.name: "Message"
                Accessible.description: now.enter
                onCursorRectangleChanged: flick.reveal(cursorRectangle)
                onTextChanged: if (!root.filling) remuda.typing(text)
                Keys.onPressed: (event) => {
                    if (event.matches(StandardKey.Paste) && remuda.pasteIsPicture()) {
                        event.accepted = true;
                        return;
                    }
                    const enter = event.key === Qt.Key_Return || event.key === Qt.Key_Enter;
                    if (event.key === Qt.Key_Tab || event.key === Qt.Key_Backtab) {
                        edit.nextItemInFocusChain(event.key === Qt.Key_Tab).forceActiveFocus(Qt.TabFocusReason);
                        event.accepted = true;
                        return;
                    }
                    if (!enter || event.modifiers & Qt.ShiftModifier)
                        return;
                    event.accepted = true;
                    if (root.composing)
                        Qt.inputMethod.commit();
                    else if (event.modifiers & Qt.AltModifier)
                        root.sendLater();
                    else
                        root.send();
                }
            }
        }
        Words {
            x: theme.s16
            y: flick.y + edit.topPadding
            width: flick.width - theme.s24
            visible: edit.length === 0 && edit.preeditText.length === 0
            text: now.harness.length > 0 ? "Message " + now.harness : "Message"
            color: theme.quiet
            elide: Text.ElideRight
            wrapMode: Text.NoWrap
            lineHeight: 1
            Accessible.ignored: true
        }
        Row {
            id: buttons
            anchors.right: parent.right
            anchors.bottom: parent.bottom
            anchors.margins: theme.s8
            spacing: theme.s4

            IconBtn {
                id: stop
                visible: now.stoppable
                primary: !send.visible
                tint: theme.accent
                glyph: "stop"
                says: now.stopping ? "Stopping" : actionTable.stop.label
                key: actionTable.stop.key
                enabled: !now.stopping
                Accessible.description: actionTable.stop.explains
                onClicked: remuda.act("stop")
            }
            IconBtn {
                id: send
                visible: now.takesText
                primary: true
                glyph: now.folderNeeded ? "folder" : "send"
                says: now.folderNeeded ? "Choose a folder first…" : now.busyEnter === "queue" ? "Put it in the queue" : "Send"
                key: now.folderNeeded ? "" : "Enter"
                enabled: now.folderNeeded ? !now.asked : !now.sending && edit.text.trim().length > 0
                onClicked: now.folderNeeded ? folder.choose() : root.send()
            }
        }
    }

    Row {
        id: line
        readonly property bool bad: now.problem.length > 0 && !now.secret
        anchors.top: box.bottom
        anchors.topMargin: theme.s4
        x: theme.s16
        width: parent.width - 2 * theme.s16
        spacing: theme.s4

        Icon {
            visible: line.bad
            side: theme.iconSmall
            name: "failed"
            tint: theme.failed
        }
        Quiet {
            width: parent.width - (line.bad ? theme.iconSmall + theme.s4 : 0) - (effort.visible ? effort.width + theme.s8 : 0)
            text: line.bad ? now.problem : now.asked ? "Go on in the window that has opened." : now.sending ? "Sending"
                : now.folderNeeded ? "Choose the folder to work in first; then Enter sends." : now.enter
            color: line.bad ? theme.failed : theme.quiet
            font.pixelSize: theme.fontSmall
            Accessible.role: Accessible.StaticText
            Accessible.name: text
        }
    }

    Btn {
        id: effort
        anchors.right: box.right
        anchors.top: box.bottom
        anchors.topMargin: theme.s4 / 2
        visible: now.efforts.length > 0
        flat: true
        small: true
        glyph: "down"
        trailing: true
        tint: theme.quiet
        text: now.effort.length > 0 ? "Effort: " + now.effort : "Effort"
        Accessible.role: Accessible.ButtonMenu
        Accessible.name: text + ", for the next message"
        // What was chosen can be taken back: the model then thinks as hard as it does by itself.
        onClicked: efforts.show(effort, ["", ...now.efforts].map((word) => ({ name: word, label: word || "Its own measure", explains: "", icon: "", key: "", checked: word === now.effort })), "")

        Menu {
            id: efforts
            width: theme.menuLeast
            y: -height - theme.s4
            onPicked: (name) => remuda.choose(now.choice, name)
        }
    }

    property bool filling: false

    Connections {
        target: remuda
        function onComposerText(text) {
            if (edit.text === text)
                return;
            root.filling = true;
            edit.text = text;
            edit.cursorPosition = edit.length;
            root.filling = false;
        }
        function onAsked(name) {
            if (name === "write" && root.visible)
                root.take();
        }
    }
}
