import QtQuick

Words {
    font.weight: theme.strong
    horizontalAlignment: Text.AlignLeft
    Accessible.role: Accessible.Heading
    Accessible.name: text
}
