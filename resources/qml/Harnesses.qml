import QtQuick

Page {
    id: root

    gap: theme.s12

    Lead {
        width: parent.width
        words: "A harness is what works with a model: it keeps the loop and the tools. Programs are looked for in the usual places when this page opens; none is used before you choose it in a conversation."
    }
    Item {
        width: parent.width
        height: theme.s4
    }
    Repeater {
        model: harnessesModel
        Harness {
            width: parent.width
        }
    }
    Quiet {
        width: parent.width
        visible: now.harnessCount === 0
        text: now.harnessesKnown ? "No harness is here. This should not be: the native one comes with Remuda." : "Asking"
    }
}
