import QtQuick

// Under a reply: its state unless it is done, what it used, and copying it whole.
RowFrame {
    id: frame

    property bool copied: false

    function rest() { copied = false; }

    ListView.onPooled: rest()

    Row {
        x: -theme.s8
        spacing: theme.s8
        height: theme.control

        Btn {
            anchors.verticalCenter: parent.verticalCenter
            flat: true
            glyph: frame.copied ? "check" : "copy"
            text: frame.copied ? "Copied" : "Copy"
            tint: theme.quiet
            leftPadding: theme.s8
            rightPadding: theme.s8
            Accessible.name: "Copy reply"
            onClicked: {
                remuda.copyMessage(frame.row.item);
                frame.copied = true;
                done.restart();
            }
        }
        StateMark {
            anchors.verticalCenter: parent.verticalCenter
            visible: frame.row.word.length > 0
            icon: frame.row.icon
            word: frame.row.word
            tone: frame.row.tone
        }
        Quiet {
            anchors.verticalCenter: parent.verticalCenter
            width: Math.min(implicitWidth, Math.max(0, frame.columnWidth - x - theme.s8))
            text: [frame.row.detail, frame.row.time].filter((part) => part.length > 0).join(" · ")
            font.pixelSize: theme.fontSmall
            elide: Text.ElideRight
            wrapMode: Text.NoWrap
        }
    }
    Timer {
        id: done
        interval: theme.copiedFor
        onTriggered: frame.rest()
    }
}
