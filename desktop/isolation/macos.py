"""macOS: the interface of `desktop.isolation`, without walls yet, and it says so.

Must not claim a wall. What belongs here: a signed helper with App Sandbox entitlements (no
network, no files) on an inherited socket pair.
"""

from desktop.isolation.unconfined import seal, start

__all__ = ["seal", "start"]
