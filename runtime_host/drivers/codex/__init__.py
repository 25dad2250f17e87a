"""The harness `openai.codex.sdk`: the Codex CLI, in a folder of this computer, behind its own walls.

`driver` opens sessions, `session` and `run` are their handles, `app_server` speaks with the CLI, `launch` says how it
is started, `home` is what it may keep, `history` reads what it kept, `mapping` and `faults` turn what it says into our
words, `profile` says what is accepted.
"""

from runtime_host.drivers.codex.driver import CodexDriver

__all__ = ["CodexDriver"]
