import QtQuick

// A tool of a mount: what it does to things, and what happens when it is called.
Item {
    id: tool

    required property var modelData
    readonly property bool beside: width >= theme.picker && verdict.width <= width / 2

    height: words.height
    Accessible.role: Accessible.ListItem
    Accessible.name: modelData.said

    Column {
        id: words
        width: parent.width
        spacing: theme.s4 / 2

        Item {
            width: parent.width
            height: tool.beside ? Math.max(name.height, verdict.height) : name.height + theme.s4 / 2 + verdict.height

            Words {
                id: name
                width: Math.min(implicitWidth, parent.width - (tool.beside ? verdict.width + theme.s12 : 0))
                text: tool.modelData.name
                horizontalAlignment: Text.AlignLeft
                elide: Text.ElideMiddle
                wrapMode: Text.NoWrap
                font.family: theme.fontCode
                font.pixelSize: theme.fontQuiet
            }
            Row {
                id: verdict
                x: tool.beside ? parent.width - width : 0
                y: tool.beside ? (name.height - height) / 2 : name.height + theme.s4 / 2
                spacing: theme.s8

                Quiet {
                    anchors.verticalCenter: parent.verticalCenter
                    text: tool.modelData.effect
                    font.pixelSize: theme.fontSmall
                    wrapMode: Text.NoWrap
                }
                // No `StateMark`: there may be hundreds of these, and none of them moves.
                Icon {
                    anchors.verticalCenter: parent.verticalCenter
                    side: theme.iconSmall
                    name: tool.modelData.icon
                    tint: theme[tool.modelData.tone]
                }
                Words {
                    anchors.verticalCenter: parent.verticalCenter
                    text: tool.modelData.word
                    color: theme[tool.modelData.tone]
                    font.pixelSize: theme.fontSmall
                    font.weight: theme.medium
                    wrapMode: Text.NoWrap
                }
            }
        }
        Quiet {
            width: parent.width
            visible: text.length > 0
            text: tool.modelData.summary
            horizontalAlignment: Text.AlignLeft
            wrapMode: Text.WrapAtWordBoundaryOrAnywhere
            elide: Text.ElideRight
            maximumLineCount: theme.linesMost
        }
        Loader {
            width: parent.width
            active: tool.modelData.warning.length > 0
            visible: active
            sourceComponent: Marked {
                icon: "warning"
                tone: "waiting"
                words: tool.modelData.warning
            }
        }
    }
}
