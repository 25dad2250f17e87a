"""For tests of the runtime and of what is built on it: a driver that does what it is told.

The contract suites are modules of their own, because they need pytest: `driver_contract` with its bad
examples in `misbehaviour`, and `storage_contract`.
"""

from runtime_host.testing.scripted import Call, Do, Fail, Flood, Hold, Script, ScriptedDriver, Wait, reply

__all__ = ["Call", "Do", "Fail", "Flood", "Hold", "Script", "ScriptedDriver", "Wait", "reply"]
