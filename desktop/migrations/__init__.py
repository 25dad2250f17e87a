"""The tables of a profile's file, as the steps that lead to them.

Step n takes the tables from version n-1 to n. A step that was released is never edited: files in
`tests/histories` were made by it.
"""

from desktop.migrations import step_0001, step_0002

STEPS = (step_0001.SQL, step_0002.SQL)
