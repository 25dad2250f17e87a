import QtQuick

// The top of what a harness did: a glyph, what it was, how it stands. What belongs to it lies below on the same ground.
Rectangle {
    id: card

    property var row
    property string glyph
    property string copies
    property string copyText
    property bool lit: false
    property bool copied: false
    readonly property real inner: theme.s12 + theme.iconSmall + theme.s8
    property real wanted: 0
    readonly property bool beside: width >= theme.picker && wanted <= width - natural - inner - 2 * theme.s24 - theme.s12
    readonly property real natural: mark.width + [facts, added, removed, fold, review].reduce((sum, part) => sum + (part.visible ? part.implicitWidth + theme.s8 : 0), 0)
    default property alias content: title.data
    signal turned

    function rest() { copied = false; }
    function done() {
        copied = true;
        after.restart();
    }

    width: parent.width
    height: column.height + 2 * theme.s8
    color: lit ? theme.waitingGround : theme.sunken
    border.width: lit ? theme.hairline : 0
    border.color: theme.waiting
    topLeftRadius: theme.radiusCard
    topRightRadius: theme.radiusCard
    bottomLeftRadius: row.attached ? 0 : theme.radiusCard
    bottomRightRadius: row.attached ? 0 : theme.radiusCard
    Accessible.role: Accessible.ListItem
    Accessible.name: row.said

    Icon {
        x: theme.s12
        y: theme.s8 + (theme.s24 - side) / 2
        side: theme.iconSmall
        name: card.glyph
        tint: card.lit ? theme.waiting : theme.quiet
    }
    Column {
        id: column
        x: card.inner
        y: theme.s8
        width: parent.width - x - theme.s12
        spacing: theme.s4

        Item {
            width: parent.width
            height: card.beside ? Math.max(title.height, marks.height) : title.height + theme.s4 + marks.height

            Item {
                id: title
                y: card.beside ? Math.max(0, (theme.s24 - firstLine) / 2) : 0
                width: parent.width - (card.beside ? marks.width + theme.s12 : 0) - (copy.visible ? copy.width : 0)
                height: childrenRect.height

                readonly property real firstLine: childrenRect.height > theme.s32 ? theme.s24 : childrenRect.height
            }
            Flow {
                id: marks
                x: card.beside ? parent.width - width - (copy.visible ? copy.width : 0) : 0
                y: card.beside ? 0 : title.height + theme.s4
                width: card.beside ? card.natural : parent.width
                spacing: theme.s8

                StateMark {
                    id: mark
                    height: theme.s24
                    icon: card.row.icon
                    word: card.row.word
                    tone: card.row.tone
                }
                Quiet {
                    id: facts
                    height: theme.s24
                    visible: text.length > 0
                    width: card.beside ? implicitWidth : Math.min(implicitWidth, parent.width)
                    text: card.row.facts
                    font.pixelSize: theme.fontSmall
                    elide: Text.ElideRight
                    wrapMode: Text.NoWrap
                }
                Words {
                    id: added
                    height: theme.s24
                    visible: text.length > 0
                    text: card.row.added || ""
                    color: theme.up
                    font.pixelSize: theme.fontSmall
                    font.weight: theme.medium
                    wrapMode: Text.NoWrap
                    Accessible.ignored: true
                }
                Words {
                    id: removed
                    height: theme.s24
                    visible: text.length > 0
                    text: card.row.removed || ""
                    color: theme.failed
                    font.pixelSize: theme.fontSmall
                    font.weight: theme.medium
                    wrapMode: Text.NoWrap
                    Accessible.ignored: true
                }
                Btn {
                    id: fold
                    visible: card.row.fold.length > 0
                    flat: true
                    small: true
                    glyph: card.row.expanded ? "down" : "right"
                    text: card.row.fold
                    tint: theme.quiet
                    Accessible.name: text + " of " + card.row.name
                    onClicked: card.turned()
                }
                Btn {
                    id: review
                    visible: (card.row.operation || "").length > 0
                    small: true
                    busy: now.asked
                    text: actionTable.review.label
                    Accessible.name: text + " " + card.row.name
                    Accessible.description: actionTable.review.explains
                    onClicked: if (!now.asked) setup.propose("review", card.row.operation)
                }
            }
        }
        Words {
            width: parent.width
            visible: text.length > 0
            text: card.row.effect || ""
            color: card.lit ? theme.text : theme.quiet
            font.pixelSize: theme.fontQuiet
            horizontalAlignment: Text.AlignLeft
            wrapMode: Text.WrapAtWordBoundaryOrAnywhere
            elide: Text.ElideRight
            maximumLineCount: card.row.expanded ? undefined : theme.linesMost
        }
        Words {
            width: parent.width
            visible: text.length > 0
            text: card.row.detail
            color: card.row.tone === "failed" ? theme.failed : theme.quiet
            font.pixelSize: theme.fontQuiet
            horizontalAlignment: Text.AlignLeft
            wrapMode: Text.WrapAtWordBoundaryOrAnywhere
        }
    }
    IconBtn {
        id: copy
        anchors.right: parent.right
        anchors.rightMargin: theme.s4
        y: theme.s8
        side: theme.s24
        visible: card.copies.length > 0
        glyph: card.copied ? "check" : "copy"
        says: card.copied ? "Copied" : card.copies
        onClicked: {
            if (card.copyText.length > 0)
                remuda.copyText(card.copyText);
            if (card.copyText.length > 0 || remuda.copyMessage(card.row.item))
                card.done();
        }
    }
    Connections {
        target: remuda
        function onCopied(item) {
            if (item === card.row.item)
                card.done();
        }
    }
    Timer {
        id: after
        interval: theme.copiedFor
        onTriggered: card.rest()
    }
}
