"""The tables of an agent's file, as the steps that lead to them.

Step n takes the tables from version n-1 to n. A step that was released is never edited: files in
`tests/histories` were made by it.
"""

from runtime_host.storage.migrations import (
    step_0001,
    step_0002,
    step_0003,
    step_0004,
    step_0005,
    step_0006,
)

STEPS = (step_0001.SQL, step_0002.SQL, step_0003.SQL, step_0004.SQL, step_0005.SQL, step_0006.SQL)
