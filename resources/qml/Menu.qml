import QtQuick
import QtQuick.Templates as T

// Entries of the table of actions, with what each does to the work.
T.Popup {
    id: menu

    property var entries: []

    width: Math.min(theme.menuMost, parent && parent.Window.window ? parent.Window.width - theme.s24 : theme.menuMost)
    implicitHeight: contentItem.implicitHeight + topPadding + bottomPadding
    margins: theme.s8
    padding: theme.s4
    focus: true
    modal: false
    closePolicy: T.Popup.CloseOnEscape | T.Popup.CloseOnPressOutside
    background: Floating {}
    onOpened: column.children[0].forceActiveFocus(Qt.TabFocusReason)

    contentItem: Column {
        id: column

        Repeater {
            model: menu.entries
            T.AbstractButton {
                id: entry

                required property string modelData
                required property int index
                readonly property var deed: actionTable[modelData]
                readonly property bool offered: deed.needs.length === 0 || !!now[deed.needs]
                readonly property color tint: deed.dangerous ? theme.failed : theme.text

                width: column.width
                implicitHeight: offered ? words.height + 2 * theme.s8 : 0
                visible: offered
                hoverEnabled: true
                focusPolicy: Qt.StrongFocus
                Accessible.role: Accessible.MenuItem
                Accessible.name: deed.label
                Accessible.description: deed.explains
                Keys.onReturnPressed: click()
                Keys.onDownPressed: nextItemInFocusChain(true).forceActiveFocus(Qt.TabFocusReason)
                Keys.onUpPressed: nextItemInFocusChain(false).forceActiveFocus(Qt.BacktabFocusReason)
                onClicked: {
                    menu.close();
                    remuda.act(modelData);
                }

                Icon {
                    x: theme.s8
                    y: theme.s8
                    name: entry.deed.icon
                    tint: entry.deed.dangerous ? theme.failed : theme.quiet
                }
                Column {
                    id: words
                    x: theme.s8 + theme.icon + theme.s8
                    y: theme.s8
                    width: parent.width - x - theme.s8
                    Words {
                        width: parent.width
                        text: entry.deed.label
                        color: entry.tint
                        font.pixelSize: theme.fontQuiet
                        font.weight: theme.medium
                    }
                    Quiet {
                        width: parent.width
                        visible: text.length > 0
                        text: entry.deed.explains
                        font.pixelSize: theme.fontSmall
                    }
                }
                Quiet {
                    anchors.right: parent.right
                    anchors.rightMargin: theme.s8
                    y: theme.s8
                    text: entry.deed.key
                    font.pixelSize: theme.fontSmall
                }
                background: Rectangle {
                    radius: theme.radius
                    color: entry.hovered || entry.activeFocus ? theme.hover : "transparent"
                }
            }
        }
    }
}
