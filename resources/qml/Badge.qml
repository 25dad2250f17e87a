import QtQuick

Rectangle {
    id: badge

    property string word
    property string value

    width: words.implicitWidth + 2 * theme.s8
    height: words.implicitHeight + theme.s4
    radius: theme.radiusPill
    color: theme.sunken
    border.width: theme.hairline
    border.color: theme.line

    Quiet {
        id: words
        anchors.centerIn: parent
        text: badge.word.length > 0 ? badge.word + " " + badge.value : badge.value
        font.pixelSize: theme.fontSmall
        wrapMode: Text.NoWrap
    }
}
