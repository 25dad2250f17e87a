import QtQuick

Words {
    color: theme.quiet
    font.pixelSize: theme.fontQuiet
}
