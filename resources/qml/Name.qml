import QtQuick

// A name on one line; what does not fit is shown to a pointer that rests on it, and always said.
Words {
    id: name

    horizontalAlignment: Text.AlignLeft
    elide: Text.ElideRight
    wrapMode: Text.NoWrap

    HoverHandler { id: pointer }
    Loader {
        active: pointer.hovered && name.truncated
        width: parent.width
        height: parent.height
        sourceComponent: Tip {
            text: name.text
            visible: true
        }
    }
}
