import QtQuick

RowFrame {
    id: frame

    readonly property real inner: row.quote * theme.s16 + row.depth * theme.indent
    property bool copied: false

    function rest() { copied = false; }

    ListView.onPooled: rest()

    Rectangle {
        x: frame.inner
        width: frame.columnWidth - frame.inner
        height: code.y + code.height + (frame.row.last ? theme.s12 : 0)
        color: theme.sunken
        topLeftRadius: frame.row.first ? theme.radiusCard : 0
        topRightRadius: frame.row.first ? theme.radiusCard : 0
        bottomLeftRadius: frame.row.last ? theme.radiusCard : 0
        bottomRightRadius: frame.row.last ? theme.radiusCard : 0

        Item {
            id: head
            visible: frame.row.first
            width: parent.width
            height: visible ? theme.control + theme.s4 : 0

            Quiet {
                x: theme.s12
                anchors.verticalCenter: parent.verticalCenter
                width: Math.max(0, copy.x - 2 * theme.s12)
                elide: Text.ElideRight
                wrapMode: Text.NoWrap
                text: frame.row.language
                font.pixelSize: theme.fontSmall
            }
            Btn {
                id: copy
                anchors.right: parent.right
                anchors.rightMargin: theme.s4
                anchors.verticalCenter: parent.verticalCenter
                flat: true
                glyph: frame.copied ? "check" : "copy"
                text: frame.copied ? "Copied" : "Copy"
                tint: theme.quiet
                leftPadding: theme.s8
                rightPadding: theme.s8
                Accessible.name: "Copy code"
                onClicked: {
                    remuda.copyCode(frame.index);
                    frame.copied = true;
                    done.restart();
                }
            }
        }
        Body {
            id: code
            x: theme.s12
            y: head.height
            width: parent.width - 2 * theme.s12
            font.family: theme.fontCode
            font.pixelSize: theme.fontQuiet
            horizontalAlignment: TextEdit.AlignLeft
            html: frame.row.html
            said: frame.row.said
            Accessible.role: Accessible.EditableText
        }
    }
    Timer {
        id: done
        interval: theme.copiedFor
        onTriggered: frame.rest()
    }
}
