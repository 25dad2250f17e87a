"""What the person says of models, written into their own `models.toml` from the window.

Owns the change of one model's table in that file. Must not know dialogs or drivers. Invariants: whatever else
stands in the file stays as it is, remarks too; a file that is wrong, or written in a way that cannot be changed
surely, is left alone and said; it holds the old or the new, whatever happens.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from desktop.paths import write_private
from runtime_host.errors import AgentDriverConfigurationError
from runtime_host.models.declared import MAX_FILE_BYTES, SOURCE, file_bytes, parse_models_toml


def declare(path: Path, model: str, said: Mapping[str, Any]) -> None:
    """Have the file say `said` of `model`, by the names of its keys; a value of None takes the saying back.

    Raises:
        AgentDriverConfigurationError: it cannot be, and why; the file is as it was.
    """
    before = _read(path)
    after = changed(before, model, said)
    try:
        write_private(path, after)
    except OSError as fault:
        raise AgentDriverConfigurationError(f"{SOURCE} cannot be written: {fault.strerror or fault}.") from fault


def changed(before: str, model: str, said: Mapping[str, Any]) -> str:
    """The text of the file with another table of `model`.

    Raises:
        AgentDriverConfigurationError: as `declare`.
    """
    parse_models_toml(before.encode())
    old = tomllib.loads(before)
    table = {**old.get("models", {}).get(model, {}), **said}
    table = {key: value for key, value in table.items() if value is not None}
    block = [f"[models.{_string(model)}]", *(f"{key} = {_value(value)}" for key, value in table.items()), ""]
    lines = before.splitlines()
    start, end = _place(lines, model)
    kept_apart = [""] if start and lines[start - 1].strip() else []
    after = "\n".join([*lines[:start], *kept_apart, *block, *lines[end:]]).rstrip("\n") + "\n"
    wanted = {**old, "models": {**old.get("models", {}), model: table}}
    # Looked at as a whole before it is written: a file may be laid out as no rule of ours foresees.
    try:
        fits = tomllib.loads(after) == wanted
    except tomllib.TOMLDecodeError:
        fits = False
    if not fits or len(after.encode()) > MAX_FILE_BYTES:
        raise AgentDriverConfigurationError(
            f"{SOURCE} is written in a way that is not changed from here. Change it in an editor."
        )
    parse_models_toml(after.encode())
    return after


def _read(path: Path) -> str:
    try:
        return file_bytes(path).decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as fault:
        raise AgentDriverConfigurationError(f"{SOURCE} cannot be read ({type(fault).__name__}).") from None


def _place(lines: list[str], model: str) -> tuple[int, int]:
    """The lines of the model's table, from its heading to the next one; the end of the file where it has none."""
    start = next((at for at, line in enumerate(lines) if _heads(line, model)), None)
    if start is None:
        return len(lines), len(lines)
    after = (at for at in range(start + 1, len(lines)) if lines[at].lstrip().startswith("["))
    end = next(after, len(lines))
    while end > start + 1 and not lines[end - 1].strip():
        end -= 1
    # Remarks right above the next heading are about that one.
    while end < len(lines) and end > start + 1 and lines[end - 1].lstrip().startswith("#"):
        end -= 1
    return start, end


def _heads(line: str, model: str) -> bool:
    if not line.lstrip().startswith("["):
        return False
    try:
        heading = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return False
    return heading == {"models": {model: {}}}


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(one) for one in value)}]"
    return str(value) if isinstance(value, int) else repr(float(value))
