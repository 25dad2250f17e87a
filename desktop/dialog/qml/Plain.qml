// Text that is never anything but text: no markup, no links, whatever it holds.
import QtQuick

Text {
    property var look
    textFormat: Text.PlainText
    wrapMode: Text.Wrap
    color: look.text
    font.family: look.fontText
    font.pixelSize: look.fontBody
    // No ligatures: "->" and "://" are drawn as the characters that are there.
    font.features: ({ "liga": 0, "calt": 0, "dlig": 0 })
    lineHeight: wrapMode === Text.NoWrap ? 1 : look.lineControl
    Accessible.role: Accessible.StaticText
    Accessible.name: text
}
