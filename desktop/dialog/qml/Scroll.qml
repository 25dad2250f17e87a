// The part between bar and buttons: scrolls when it does not fit, and knows whether its end was seen.
import QtQuick

Flickable {
    id: scroll
    required property var look
    property bool readWhole: false
    default property alias content: column.data
    readonly property real wanted: column.implicitHeight + 2 * look.s24

    contentWidth: width
    contentHeight: wanted
    clip: true
    boundsBehavior: Flickable.StopAtBounds
    interactive: contentHeight > height
    flickableDirection: Flickable.VerticalFlick

    function by(distance) { contentY = Math.max(0, Math.min(contentHeight - height, contentY + distance)) }
    // The whole of an item that got the focus, its label and its sentence too.
    property Item at: null
    onHeightChanged: if (at !== null) reveal(at)
    function reveal(item) {
        at = item
        const top = item.mapToItem(contentItem, 0, 0).y - look.s24
        const foot = top + item.height + 2 * look.s24
        if (top < contentY) contentY = Math.max(0, top)
        else if (foot > contentY + height) contentY = Math.max(0, Math.min(top, foot - height, contentHeight - height))
    }
    function note() { if (height > 0 && contentY + height >= contentHeight - 1) readWhole = true }
    onContentYChanged: note()

    Column {
        id: column
        x: scroll.look.s24
        y: scroll.look.s24
        width: scroll.width - 2 * scroll.look.s24
        spacing: scroll.look.s16
    }
    Rectangle {
        id: thumb
        parent: scroll.parent
        visible: scroll.interactive
        width: scroll.look.bar
        radius: scroll.look.radiusBar
        color: scroll.look.border
        height: Math.max(scroll.look.barLeast, scroll.height * scroll.height / scroll.contentHeight)
        x: scroll.x + scroll.width - width - scroll.look.s4
        y: scroll.y + (scroll.height - height) * scroll.contentY / Math.max(1, scroll.contentHeight - scroll.height)
        MouseArea {
            anchors.fill: parent
            anchors.margins: -scroll.look.s4
            property real from: 0
            onPressed: (mouse) => { from = mouse.y }
            onPositionChanged: (mouse) => {
                scroll.by((mouse.y - from) * (scroll.contentHeight - scroll.height) / Math.max(1, scroll.height - thumb.height))
            }
        }
    }
}
