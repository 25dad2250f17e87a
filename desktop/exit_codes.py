"""How a command ended, as a number: the promise to scripts.

Standard library only: the command line imports it where a running host does all the work.
"""

COMPLETED, FAILED, USAGE, CANCELLED, INCOMPLETE, UNKNOWN, SILENT = 0, 1, 2, 3, 4, 5, 6
