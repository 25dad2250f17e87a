import QtQuick
import QtQuick.Templates as T

// Things to do, with what each does to the work. `deeds` are rows of the table of actions, or like them.
T.Popup {
    id: menu

    property var deeds: []
    property string target
    signal picked(string name)

    function show(anchor, entries, about) {
        parent = anchor;
        deeds = entries;
        target = about;
        open();
    }
    function step(by) {
        list.currentIndex = (list.currentIndex + by + list.count) % list.count;
    }

    x: parent ? parent.width - width : 0
    y: parent ? parent.height + theme.s4 : 0
    width: Math.min(theme.menuMost, parent && parent.Window.window ? parent.Window.width - theme.s24 : theme.menuMost)
    implicitHeight: Math.min(list.contentHeight, theme.menuHigh) + topPadding + bottomPadding
    margins: theme.s8
    padding: theme.s4
    focus: true
    modal: false
    closePolicy: T.Popup.CloseOnEscape | T.Popup.CloseOnPressOutside
    background: Floating {}
    onOpened: {
        list.currentIndex = Math.max(0, deeds.findIndex((deed) => deed.checked === true));
        list.enter();
    }

    contentItem: ListView {
        id: list

        function enter() {
            if (currentItem)
                currentItem.forceActiveFocus(Qt.TabFocusReason);
        }

        model: menu.deeds
        clip: true
        cacheBuffer: theme.ahead
        boundsBehavior: Flickable.StopAtBounds
        highlightMoveDuration: 0
        keyNavigationEnabled: false
        Accessible.role: Accessible.PopupMenu
        Accessible.name: "What can be done"
        onCurrentItemChanged: if (menu.opened) enter()
        Keys.onDownPressed: menu.step(1)
        Keys.onUpPressed: menu.step(-1)
        Keys.onTabPressed: menu.step(1)
        Keys.onBacktabPressed: menu.step(-1)
        T.ScrollBar.vertical: Bar {}

        delegate: T.AbstractButton {
            id: entry

            required property var modelData
            required property int index

            width: list.width
            implicitHeight: words.height + 2 * theme.s8
            hoverEnabled: true
            focusPolicy: Qt.StrongFocus
            Accessible.role: Accessible.MenuItem
            Accessible.name: modelData.label
            Accessible.description: modelData.explains
            Accessible.checkable: modelData.checked !== undefined
            Accessible.checked: modelData.checked === true
            Keys.onReturnPressed: click()
            Keys.onEnterPressed: click()
            onActiveFocusChanged: if (activeFocus) list.currentIndex = index
            onClicked: {
                menu.close();
                menu.picked(modelData.name);
            }

            Icon {
                x: theme.s8
                y: theme.s8
                name: entry.modelData.checked === true ? "check" : entry.modelData.icon
                tint: entry.modelData.dangerous ? theme.failed : entry.modelData.checked === true ? theme.accent : theme.quiet
            }
            Column {
                id: words
                x: theme.s8 + theme.icon + theme.s8
                y: theme.s8
                width: parent.width - x - theme.s8 - (hint.text.length > 0 ? hint.width + theme.s8 : 0)
                Words {
                    width: parent.width
                    text: entry.modelData.label
                    horizontalAlignment: Text.AlignLeft
                    color: entry.modelData.dangerous ? theme.failed : theme.text
                    font.pixelSize: theme.fontQuiet
                    font.weight: theme.medium
                    elide: Text.ElideRight
                    maximumLineCount: 2
                }
                Quiet {
                    width: parent.width
                    visible: text.length > 0
                    text: entry.modelData.explains
                    horizontalAlignment: Text.AlignLeft
                    font.pixelSize: theme.fontSmall
                    elide: Text.ElideRight
                    maximumLineCount: 2
                }
            }
            Quiet {
                id: hint
                anchors.right: parent.right
                anchors.rightMargin: theme.s8
                y: theme.s8
                text: entry.modelData.key
                font.pixelSize: theme.fontSmall
            }
            background: Rectangle {
                radius: theme.radius
                color: entry.hovered || entry.activeFocus ? theme.hover : "transparent"
                FocusRing {
                    shown: entry.visualFocus
                    anchors.margins: 0
                }
            }
        }
    }
}
