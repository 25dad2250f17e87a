import QtQuick

Image {
    property string name
    property color tint: theme.text
    property real side: theme.icon

    width: side
    height: side
    sourceSize.width: side
    sourceSize.height: side
    source: name.length > 0 ? "image://icon/" + name + "/" + ("" + tint).slice(1) : ""
    asynchronous: false
}
