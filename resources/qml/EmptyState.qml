import QtQuick

// Nothing said yet: what to do, and three things to say.
Item {
    id: root

    property var composer
    readonly property bool inFolder: now.folder.length > 0 || now.folderUse === "required"
    readonly property var chats: ["What is the capital of France?", "Write four lines about rain in the mountains", "Explain how a bicycle stays upright"]
    readonly property var works: ["Explain what this folder holds", "Look for mistakes and list them", "Suggest what to do next here"]

    Column {
        anchors.centerIn: parent
        width: Math.min(theme.form, root.width - 2 * theme.s16)
        spacing: theme.s8

        Words {
            width: parent.width
            text: "What should be done?"
            font.pixelSize: theme.fontLarge
            font.weight: theme.strong
            horizontalAlignment: Text.AlignHCenter
            Accessible.role: Accessible.Heading
            Accessible.name: text
        }
        Quiet {
            width: parent.width
            bottomPadding: theme.s16
            horizontalAlignment: Text.AlignHCenter
            lineHeight: theme.lineReading
            text: "Write below, or start from one of these. Harness and model are at the top: choose them before the first message. Where the agent works on this computer, the model can be changed later, too."
        }
        Repeater {
            model: root.inFolder ? root.works : root.chats
            Btn {
                required property string modelData
                anchors.horizontalCenter: parent.horizontalCenter
                text: modelData
                onClicked: root.composer.fill(modelData)
            }
        }
    }
}
