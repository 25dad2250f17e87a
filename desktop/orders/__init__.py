"""What a host does when it is told to, by a command or by its own command line, and how it answers."""
