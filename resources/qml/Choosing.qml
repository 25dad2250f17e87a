import QtQuick

// Where the picker floats: a place that can be loaded, as large as there is room for it.
Item {
    id: place

    function open() { picker.open(); }

    Picker {
        id: picker
        roomWidth: place.width
        roomHeight: place.height
    }
}
