"""What a picky provider says against the fields of a request.

Owns the shapes that are let in, and how they are given back. Must not know any state. Invariant: a field that is not
known here is refused.
"""

import base64
import binascii
from collections.abc import Callable, Collection
from typing import Any, NoReturn

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
TIERS = ("auto", "default", "flex", "priority", "fast", "ultrafast")
ACCESS = ("enabled", "disabled", "restricted")
PREFIX = "agent.session.input."
HOSTED = (
    "capability_directories", "container_size", "desktop", "env", "environment_id", "environment_template_id", "files",
    "network", "packages", "plugins", "setup_commands", "skills",
)  # fmt: skip
TEMPLATE = tuple(name for name in HOSTED if not name.startswith(("environment_", "container_")))

Record = dict[str, Any]


class Refusal(Exception):
    """A request that is answered with an error.

    Attributes:
        status: of HTTP.
        code: as ``invalid_request_error``.
        param: the field it is about.
    """

    def __init__(self, message: str, status: int = 400, code: str = "invalid_request_error", param: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param


def refuse(message: str, param: str = "") -> NoReturn:
    raise Refusal(message, param=param)


def conflict(message: str) -> NoReturn:
    raise Refusal(message, 409, "conflict_error")


def not_found(what: str) -> NoReturn:
    raise Refusal(f"{what} was not found.", 404, "not_found_error")


def shape(body: Any, required: Collection[str], optional: Collection[str] = (), where: str = "") -> Record:
    """`body` as an object that has all of `required` and nothing but these and `optional`."""
    if not isinstance(body, dict):
        refuse(f"{where or 'body'}: must be an object")
    for name in required:
        if body.get(name) is None:
            refuse(f"Missing required parameter: '{where}{name}'.", f"{where}{name}")
    for name in sorted(set(body) - {*required, *optional}):
        refuse(f"Unknown parameter: '{where}{name[:64]}'.", f"{where}{name[:64]}")
    return body


def one_of(value: Any, allowed: Collection[Any], where: str) -> Any:
    if value not in allowed:
        refuse(f"Invalid value: '{where}'.", where)
    return value


def text(value: Any, where: str, limit: int = 1_048_576) -> str:
    if not isinstance(value, str) or not value or len(value) > limit:
        refuse(f"'{where}' must be a text of 1 to {limit} characters.", where)
    return value


def listed(value: Any, where: str) -> list[Any]:
    if value is not None and not isinstance(value, list):
        refuse(f"'{where}' must be a list.", where)
    return list(value or ())


def metadata(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > 16:
        refuse("'metadata' must have at most 16 pairs.", "metadata")
    for name, entry in value.items():
        if len(name) > 64 or not isinstance(entry, str) or len(entry) > 512:
            refuse("'metadata' must be of texts of at most 64 and 512 characters.", "metadata")
    return dict(value)


# ---- messages and their content ----


def content(value: Any, where: str) -> list[Record]:
    """Parts as a client sends them."""
    if not isinstance(value, list) or not value:
        refuse(f"'{where}' must be a list that is not empty.", where)
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "input_text":
            shape(part, ("type",), ("text",), f"{where}.")
            if not isinstance(part.get("text"), str):
                refuse(f"'{where}.text' must be a text.", f"{where}.text")
        elif kind == "input_image":
            text(shape(part, ("type", "image_url"), (), f"{where}.")["image_url"], f"{where}.image_url", 64_000_000)
        else:
            refuse(f"Invalid value: '{where}.type'.", f"{where}.type")
    return list(value)


def messages(value: Any, where: str = "input") -> list[list[Record]]:
    """The contents of the messages of an input; a text is one message."""
    if isinstance(value, str):
        return [[{"type": "input_text", "text": text(value, where)}]]
    if not isinstance(value, list) or not value:
        refuse(f"'{where}' must be a text, or a list that is not empty.", where)
    found = []
    for each in value:
        shape(each, ("role", "content"), ("type",), f"{where}.")
        one_of(each["role"], ("user",), f"{where}.role")
        one_of(each.get("type", "message"), ("message",), f"{where}.type")
        found.append(content(each["content"], f"{where}.content"))
    return found


def event(value: Any) -> Record:
    """One event of a client."""
    kind = value.get("type") if isinstance(value, dict) else None
    check = _EVENTS.get(str(kind))
    if check is None:
        refuse("Invalid value: 'events.type'.", "events.type")
    check(value)
    return dict(value)


def _message(value: Record) -> None:
    messages(shape(value, ("type", "input"), (), "events.")["input"], "events.input")


def _cancel(value: Record) -> None:
    shape(value, ("type",), (), "events.")


def _tool_result(value: Record) -> None:
    shape(value, ("type", "turn_id", "call_id", "success"), ("output", "error"), "events.")
    if not isinstance(value["success"], bool):
        refuse("'events.success' must be true or false.", "events.success")
    output, error = value.get("output"), value.get("error")
    if output is not None and not isinstance(output, str):
        content(output, "events.output")
    if error is not None and (not isinstance(error, str) or value["success"]):
        refuse("'events.error' must be a text, of a call that failed.", "events.error")
    if value["success"] and output is None:
        refuse("Missing required parameter: 'events.output'.", "events.output")


def _approval(value: Record) -> None:
    shape(value, ("type", "request_id", "response"), (), "events.")


_EVENTS: dict[str, Callable[[Record], None]] = {
    f"{PREFIX}message": _message,
    f"{PREFIX}cancel": _cancel,
    f"{PREFIX}tool_result": _tool_result,
    f"{PREFIX}mcp_approval_request_result": _approval,
    f"{PREFIX}computer_use_approval_request_result": _approval,
}


# ---- agents ----

AGENT = ("compaction", "experimental", "instructions", "model", "multi_agent", "reasoning", "service_tier", "text")


def agent(value: Any) -> Record:
    """The agent of a session, as it is given back: with everything that holds."""
    found = shape(value, ("model",), (*AGENT, "tools"), "agent.")
    multi = shape(found.get("multi_agent") or {}, (), ("enabled", "max_concurrent_subagents"), "agent.multi_agent.")
    return {
        "instructions": found.get("instructions"),
        "model": text(found["model"], "agent.model", 256),
        "multi_agent": {"enabled": bool(multi.get("enabled")), "max_concurrent_subagents": None} | multi,
        "name": None,
        "reasoning": reasoning(found.get("reasoning"), ("effort", "summary")),
        "service_tier": one_of(found.get("service_tier") or "auto", TIERS, "agent.service_tier"),
        "text": _text_format(found.get("text")),
        "tools": tools(found.get("tools")),
    }


def reasoning(value: Any, keys: Collection[str]) -> Record:
    found = shape(value or {}, (), keys, "agent.reasoning.")
    effort, summary = found.get("effort"), found.get("summary")
    one_of(effort, (*EFFORTS, None), "agent.reasoning.effort")
    one_of(summary, ("concise", "detailed", "auto", None), "agent.reasoning.summary")
    return {"effort": effort, "summary": summary}


def _text_format(value: Any) -> Record:
    found = shape(value or {}, (), ("format", "verbosity"), "agent.text.")
    form = found.get("format") or {"type": "text"}
    if one_of(form.get("type"), ("text", "json_schema"), "agent.text.format.type") == "text":
        shape(form, ("type",), (), "agent.text.format.")
    elif not isinstance(shape(form, ("type", "schema"), (), "agent.text.format.")["schema"], dict):
        refuse("'agent.text.format.schema' must be an object.", "agent.text.format.schema")
    verbosity = one_of(found.get("verbosity") or "medium", ("low", "medium", "high"), "agent.text.verbosity")
    return {"format": dict(form), "verbosity": verbosity}


def tools(value: Any) -> list[Record]:
    found = [_tool(each) for each in listed(value, "agent.tools")]
    names = [each["name"] for each in found if each["type"] == "function"]
    if len(names) != len(set(names)):
        refuse("'agent.tools': names must differ.", "agent.tools")
    return found


def _tool(value: Any) -> Record:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind != "function":
        one_of(kind, ("web_search", "programmatic_tool_calling", "mcp", "computer_use"), "agent.tools.type")
        return dict(value)
    keys = ("type", "name", "description", "parameters")
    found = shape(value, keys, ("defer_loading", "async"), "agent.tools.")
    if not isinstance(found["parameters"], dict):
        refuse("'agent.tools.parameters' must be an object.", "agent.tools.parameters")
    text(found["name"], "agent.tools.name", 128)
    return {**found, "defer_loading": bool(found.get("defer_loading")), "async": bool(found.get("async"))}


def session_update(value: Any) -> Record:
    """What may be changed of a session, and nothing else."""
    found = shape(value, (), ("agent", "metadata", "prompt_cache_options", "review"))
    changed = shape(found.get("agent") or {}, (), ("model", "reasoning", "service_tier", "tools"), "agent.")
    if "model" in changed:
        text(changed["model"], "agent.model", 256)
    if "reasoning" in changed:
        reasoning(changed["reasoning"], ("effort",))
    if "tools" in changed:
        tools(changed["tools"])
    metadata(found.get("metadata"))
    one_of(found.get("review", "none"), ("none", "auto_review"), "review")
    return found


# ---- environments ----


def environment(value: Any, default_access: str) -> Record:
    """An environment as it is given back, without its id; what is never given back is left out."""
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "none":
        return dict(shape(value, ("type",), (), "environment."))
    if kind == "self_hosted":
        keys = ("type", "workspace_directory")
        found = shape(value, keys, ("capability_directories",), "environment.")
        return {"capability_directories": [], "remote_url": "wss://self-hosted.invalid", **found}
    one_of(kind, ("openai_hosted",), "environment.type")
    found = shape(value, ("type",), HOSTED, "environment.")
    size = one_of(found.get("container_size"), ("small", "medium", "large", None), "environment.container_size")
    return {"type": kind, **hosted(found, default_access), "container_size": size}


def hosted(found: Record, default_access: str) -> Record:
    """What a hosted environment and a template have in common."""
    packages = shape(found.get("packages") or {}, (), ("npm", "python", "system"), "packages.")
    keys = ("allowed_domains", "blocked_domains")
    said = found.get("network")
    network = shape({"access": default_access} if said is None else said, ("access",), keys, "network.")
    one_of(network["access"], ACCESS, "network.access")
    desktop = found.get("desktop")
    if desktop is not None:
        shape(desktop, ("enabled",), (), "desktop.")
    return {
        "capability_directories": listed(found.get("capability_directories"), "capability_directories"),
        "files": [],
        "network": {
            "access": network["access"],
            "allowed_domains": listed(network.get("allowed_domains"), "network.allowed_domains"),
        },
        "packages": {name: listed(packages.get(name), f"packages.{name}") for name in ("npm", "python", "system")},
        "plugins": listed(found.get("plugins"), "plugins"),
        "skills": listed(found.get("skills"), "skills"),
        "desktop": desktop,
    }


def file(value: Any) -> Record:
    """A file that is to be put into an environment; `content` is what an inline one holds."""
    kind = value.get("type") if isinstance(value, dict) else None
    source = {"inline": "data", "file_id": "file_id"}.get(str(kind))
    if source is None:
        refuse("Invalid value: 'type'.", "type")
    found = dict(shape(value, ("type", source, "path")))
    path = text(found["path"], "path", 4096)
    if not path.startswith("/workspace/") or {"..", ".", ""} & set(path.split("/")[1:]):
        refuse("'path' must be a plain path under /workspace.", "path")
    if kind == "inline":
        try:
            found["content"] = base64.b64decode(found.pop("data"), validate=True)
        except (binascii.Error, ValueError, TypeError):
            refuse("'data' must be base64.", "data")
    return found
