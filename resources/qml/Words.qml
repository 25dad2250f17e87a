import QtQuick

// All text that is not a message's: plain whatever it holds.
Text {
    textFormat: Text.PlainText
    color: theme.text
    font.family: theme.fontText
    font.pixelSize: theme.fontBody
    lineHeight: theme.lineControl
    verticalAlignment: Text.AlignVCenter
    wrapMode: Text.Wrap
}
