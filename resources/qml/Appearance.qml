import QtQuick
import QtQuick.Templates as T

Page {
    id: root

    gap: theme.s16

    Heading {
        width: parent.width
        text: "Light or dark"
    }
    Column {
        id: group
        width: parent.width
        spacing: theme.s8
        Accessible.role: Accessible.Grouping
        Accessible.name: "Light or dark"

        Repeater {
            id: ways
            model: [
                { name: "system", title: "As the system", words: "Follows the system when it changes." },
                { name: "light", title: "Light", words: "Dark words on paper." },
                { name: "dark", title: "Dark", words: "Light words on dark ground." }
            ]
            Way {
                id: way
                required property var modelData
                required property int index

                width: group.width
                glyph: modelData.name
                title: modelData.title
                words: modelData.words
                primary: now.theme === modelData.name
                Accessible.role: Accessible.RadioButton
                Accessible.checkable: true
                Accessible.checked: primary
                Keys.onUpPressed: ways.itemAt((index + ways.count - 1) % ways.count).forceActiveFocus(Qt.TabFocusReason)
                Keys.onDownPressed: ways.itemAt((index + 1) % ways.count).forceActiveFocus(Qt.TabFocusReason)
                onClicked: remuda.setTheme(modelData.name)
            }
        }
    }
    Quiet {
        width: parent.width
        lineHeight: theme.lineReading
        text: "Contrast and motion follow the system."
    }
}
