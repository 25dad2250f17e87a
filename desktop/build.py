"""Which build this is: host and renderer must be of the same one. Standard library only."""

VERSION = "0.1.0"

BUILD = f"remuda-{VERSION}"
