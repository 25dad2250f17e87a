"""Windows: the interface of `desktop.isolation`, without walls yet, and it says so.

Must not claim a wall. What belongs here: an AppContainer with a job object that forbids
child processes, and an explicit list of handles.
"""

from desktop.isolation.unconfined import seal, start

__all__ = ["seal", "start"]
