import QtQuick

// A path on one line, its middle left out where there is no room; the whole is in the tip and always said.
Words {
    id: path

    property string whole

    horizontalAlignment: Text.AlignLeft
    elide: Text.ElideMiddle
    wrapMode: Text.NoWrap
    font.family: theme.fontCode
    font.pixelSize: theme.fontQuiet
    Accessible.role: Accessible.StaticText
    Accessible.name: whole

    HoverHandler { id: pointer }
    Loader {
        active: pointer.hovered && (path.truncated || path.text !== path.whole)
        width: parent.width
        height: parent.height
        sourceComponent: Tip {
            text: path.whole
            visible: true
        }
    }
}
