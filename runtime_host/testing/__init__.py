"""For tests of the runtime and of what is built on it: a driver that does what it is told."""

from runtime_host.testing.scripted import Fail, Hold, Script, ScriptedDriver, Wait, reply

__all__ = ["Fail", "Hold", "Script", "ScriptedDriver", "Wait", "reply"]
