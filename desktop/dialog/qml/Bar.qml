// What every dialog of Remuda begins with: the lock, whose dialog it is, and the picture the person chose.
import QtQuick

Rectangle {
    id: bar
    required property var desk
    readonly property var look: desk.look
    readonly property bool chosen: desk.picture.words !== ""
    // Large letters in a narrow window: the picture stands below the words, and neither is cut.
    readonly property bool tight: chosen && width < look.s48 * 7
    color: look.accent
    implicitHeight: tight ? says.height + mark.height + 2 * look.s12 + look.s8 : look.header

    Strokes {
        id: lock
        x: bar.look.s16
        y: bar.tight ? bar.look.s12 : (bar.height - height) / 2
        size: bar.look.s24
        colour: bar.look.onAccent
        path: "M6 11h12v10H6zM8 11V8a4 4 0 0 1 8 0v3M12 15v2.500"
    }
    Column {
        id: says
        x: lock.x + lock.width + bar.look.s12
        y: bar.tight ? bar.look.s12 : (bar.height - height) / 2
        width: (bar.tight || !bar.chosen ? bar.width : mark.x) - x - bar.look.s12
        Plain {
            look: bar.look
            width: parent.width
            wrapMode: Text.NoWrap
            elide: Text.ElideRight
            text: qsTr("Remuda asks")
            color: bar.look.onAccent
            font.weight: bar.look.strong
        }
        Plain {
            look: bar.look
            width: parent.width
            wrapMode: Text.NoWrap
            elide: Text.ElideRight
            visible: bar.desk.profile !== ""
            text: qsTr("Profile %1").arg(bar.desk.profile)
            color: bar.look.onAccent
            font.pixelSize: bar.look.fontSmall
        }
    }
    Row {
        id: mark
        x: bar.tight ? says.x : bar.width - width - bar.look.s16
        y: bar.tight ? says.y + says.height + bar.look.s8 : (bar.height - height) / 2
        layoutDirection: bar.tight ? Qt.RightToLeft : Qt.LeftToRight
        spacing: bar.look.s8
        visible: bar.chosen
        Accessible.role: Accessible.Graphic
        Accessible.name: qsTr("Your picture: %1").arg(bar.desk.picture.words)
        Plain {
            look: bar.look
            anchors.verticalCenter: parent.verticalCenter
            wrapMode: Text.NoWrap
            text: bar.desk.picture.words
            color: bar.look.onAccent
            font.weight: bar.look.medium
            Accessible.ignored: true
        }
        Rectangle {
            width: bar.look.s32 + bar.look.s4
            height: width
            radius: width / 2
            color: bar.look.page
            Strokes {
                anchors.centerIn: parent
                size: bar.look.s24
                path: bar.desk.picture.path
                colour: bar.chosen ? bar.desk.picture.colour : "transparent"
            }
        }
    }
}
