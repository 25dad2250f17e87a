"""The command line's commands, by what they are about, and what all of them need to reach a host and to print."""
