"""Plugins: what a mount can be of. Each is a folder; `base` is what all of them meet."""
