import QtQuick
import QtQuick.Templates as T

// Harness, connector and model, with what each of them means for the person.
T.Popup {
    id: picker

    property real roomWidth: theme.picker
    property real roomHeight: theme.picker

    width: Math.min(theme.picker, roomWidth)
    height: Math.min(list.contentHeight + foot.height + topPadding + bottomPadding, roomHeight)
    padding: theme.s4
    focus: true
    closePolicy: T.Popup.CloseOnEscape | T.Popup.CloseOnPressOutside
    background: Floating {}
    onOpened: {
        list.currentIndex = list.count > 0 ? Math.max(0, now.choicePlace) : -1;
        list.forceActiveFocus();
    }

    contentItem: Item {
        ListView {
            id: list
            anchors.left: parent.left
            anchors.right: parent.right
            anchors.top: parent.top
            anchors.bottom: foot.top
            model: choicesModel
            clip: true
            boundsBehavior: Flickable.StopAtBounds
            keyNavigationEnabled: true
            highlightMoveDuration: 0
            Accessible.role: Accessible.List
            Accessible.name: "Harness and model"
            T.ScrollBar.vertical: Bar {}
            Keys.onReturnPressed: if (currentItem) currentItem.take("")

            delegate: Item {
                id: entry

                required property var row
                required property int index
                readonly property bool current: ListView.isCurrentItem && list.activeFocus

                function take(effort) {
                    if (!row.available)
                        return;
                    remuda.choose(row.id, effort);
                    if (row.efforts.length === 0 || effort.length > 0)
                        picker.close();
                }

                width: list.width
                height: card.y + card.height
                opacity: row.available ? 1 : theme.off
                Accessible.role: Accessible.ListItem
                Accessible.name: row.said
                Accessible.selected: row.chosen

                Quiet {
                    id: heading
                    x: theme.s12
                    y: theme.s8
                    visible: entry.row.heading.length > 0
                    text: entry.row.heading
                    font.pixelSize: theme.fontSmall
                    font.weight: theme.medium
                }
                T.AbstractButton {
                    id: card
                    y: heading.visible ? heading.y + heading.height + theme.s4 : 0
                    width: parent.width
                    height: column.height + 2 * theme.s8
                    hoverEnabled: true
                    focusPolicy: Qt.NoFocus
                    onClicked: entry.take("")

                    Column {
                        id: column
                        x: theme.s12
                        y: theme.s8
                        width: parent.width - 2 * theme.s12 - theme.icon - theme.s8
                        spacing: theme.s4

                        Words {
                            width: parent.width
                            text: entry.row.model + "  ·  " + entry.row.connector
                            font.weight: theme.medium
                            elide: Text.ElideMiddle
                            wrapMode: Text.NoWrap
                        }
                        Flow {
                            width: parent.width
                            spacing: theme.s4
                            Repeater {
                                model: entry.row.badges
                                Badge {
                                    required property var modelData
                                    word: modelData.word
                                    value: modelData.value
                                }
                            }
                        }
                        Quiet {
                            width: parent.width
                            visible: text.length > 0
                            text: entry.row.note
                        }
                        Row {
                            visible: entry.row.chosen && entry.row.efforts.length > 0
                            spacing: theme.s4
                            Quiet {
                                anchors.verticalCenter: parent.verticalCenter
                                text: "Effort"
                                rightPadding: theme.s4
                            }
                            Repeater {
                                model: entry.row.efforts
                                Btn {
                                    required property string modelData
                                    text: modelData
                                    primary: modelData === entry.row.effort
                                    Accessible.name: "Effort " + modelData
                                    onClicked: entry.take(modelData)
                                }
                            }
                        }
                    }
                    Icon {
                        anchors.right: parent.right
                        anchors.rightMargin: theme.s12
                        y: theme.s8
                        visible: entry.row.chosen
                        name: "check"
                        tint: theme.accent
                    }
                    background: Rectangle {
                        radius: theme.radius
                        color: entry.row.chosen ? theme.chosen : card.hovered ? theme.hover : "transparent"
                        FocusRing {
                            shown: entry.current
                            anchors.margins: 0
                        }
                    }
                }
            }
        }
        Column {
            id: foot
            anchors.left: parent.left
            anchors.right: parent.right
            anchors.bottom: parent.bottom
            topPadding: theme.s8

            Rectangle {
                width: parent.width
                height: theme.hairline
                color: theme.line
            }
            Repeater {
                model: connectorsModel
                Item {
                    id: connection

                    required property var row

                    width: foot.width
                    height: visible ? theme.control + theme.s4 : 0
                    visible: row.removable
                    Words {
                        x: theme.s12
                        width: Math.max(0, drop.x - 2 * theme.s12)
                        anchors.verticalCenter: parent.verticalCenter
                        text: connection.row.name + "  ·  " + connection.row.address
                        font.pixelSize: theme.fontQuiet
                        color: theme.quiet
                        elide: Text.ElideRight
                        wrapMode: Text.NoWrap
                    }
                    IconBtn {
                        id: drop
                        anchors.right: parent.right
                        anchors.rightMargin: theme.s4
                        anchors.verticalCenter: parent.verticalCenter
                        glyph: "trash"
                        says: "Remove " + connection.row.name
                        onClicked: remuda.removeConnector(connection.row.id)
                    }
                }
            }
            Btn {
                flat: true
                glyph: "plus"
                text: "Add a server or a key…"
                onClicked: {
                    picker.close();
                    remuda.addConnector();
                }
            }
        }
    }
}
