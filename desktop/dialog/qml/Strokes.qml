// A drawing made of strokes on a 24 x 24 grid, at any size.
import QtQuick
import QtQuick.Shapes

Item {
    id: strokes
    property string path
    property color colour
    property real size: 24
    property real weight: 1.7
    width: size
    height: size
    Shape {
        width: 24
        height: 24
        scale: strokes.size / 24
        transformOrigin: Item.TopLeft
        visible: strokes.path !== ""
        ShapePath {
            strokeColor: strokes.colour
            strokeWidth: strokes.weight
            fillColor: "transparent"
            capStyle: ShapePath.RoundCap
            joinStyle: ShapePath.RoundJoin
            PathSvg { path: strokes.path }
        }
    }
}
