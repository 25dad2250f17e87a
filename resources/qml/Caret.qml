import QtQuick

// A caret that rests after a while, and at once in an inactive window: resting costs nothing.
Rectangle {
    id: caret

    required property Item field
    property bool lit: true
    property bool awake: true

    function wake() {
        lit = true;
        awake = true;
        rest.restart();
    }

    width: theme.caret
    color: theme.accent
    visible: field.activeFocus && (lit || !blink.running)

    Connections {
        target: caret.field
        function onCursorRectangleChanged() { caret.wake(); }
        function onActiveFocusChanged() { caret.wake(); }
    }

    Timer {
        id: blink
        interval: theme.caretHalf
        repeat: true
        running: caret.awake && caret.field.activeFocus && caret.Window.active && caret.Window.visibility !== Window.Hidden && theme.moving
        onTriggered: caret.lit = !caret.lit
    }

    Timer {
        id: rest
        interval: theme.caretRest
        running: caret.field.activeFocus
        onTriggered: {
            caret.awake = false;
            caret.lit = true;
        }
    }
}
