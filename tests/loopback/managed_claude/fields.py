"""What a picky provider says against the fields of a request.

Owns the shapes that are let in. Must not know any state. Invariant: a field that is not known here is refused.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn

EFFORTS = ("low", "medium", "high", "xhigh", "max")
BUILT_INS = ("bash", "edit", "read", "write", "glob", "grep", "web_fetch", "web_search")
POLICIES = ("always_allow", "always_ask", "auto")
PACKAGES = ("apt", "cargo", "gem", "go", "npm", "pip")
_WORD = re.compile(r"[A-Za-z0-9_-]{1,128}")


class Refusal(Exception):
    """A request that is answered with an error.

    Attributes:
        status: of HTTP.
        kind: ``invalid_request_error`` and the like.
        code: in ``details.error_code``, where there is one.
    """

    def __init__(self, message: str, status: int = 400, kind: str = "invalid_request_error", code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code


def refuse(message: str, code: str = "") -> NoReturn:
    raise Refusal(message, code=code)


def not_found(what: str, code: str = "") -> NoReturn:
    raise Refusal(f"{what} was not found", 404, "not_found_error", code)


def shape(body: Any, required: Collection[str], optional: Collection[str] = (), where: str = "") -> dict[str, Any]:
    """`body` as an object that has all of `required` and nothing but these and `optional`."""
    if not isinstance(body, dict):
        refuse(f"{where or 'body'}: must be an object")
    for name in required:
        if body.get(name) is None:
            refuse(f"{where}{name}: Field required")
    for name in sorted(set(body) - {*required, *optional}):
        refuse(f"{where}{name}: Extra inputs are not permitted")
    return body


def text(value: Any, where: str, limit: int = 1_000_000) -> str:
    if not isinstance(value, str) or not value or len(value) > limit:
        refuse(f"{where}: must be a text of 1 to {limit} characters")
    return value


def metadata(value: Any, *, patch: bool = False) -> dict[str, Any]:
    found = shape(value or {}, (), tuple(value or {}), "metadata.")
    if len(found) > 16:
        refuse("metadata: at most 16 pairs")
    for name, entry in found.items():
        if len(name) > 64 or not ((isinstance(entry, str) and len(entry) <= 512) or (patch and entry is None)):
            refuse(f"metadata.{name[:64]}: must be a text of at most 512 characters")
    return dict(found)


def model(value: Any) -> dict[str, Any]:
    """What is said of a model, as it is given back."""
    given = {"id": value} if isinstance(value, str) else value
    found = shape(given, ("id",), ("effort", "speed", "inference_geo"), "model.")
    text(found["id"], "model.id", 256)
    answer = {"id": found["id"], "speed": found.get("speed") or "standard"}
    effort = found.get("effort")
    if effort is not None:
        level = effort.get("type") if isinstance(effort, dict) else effort
        if level not in EFFORTS:
            refuse("model.effort: must be one of low, medium, high, xhigh, max")
        answer["effort"] = {"type": level}
    if answer["speed"] not in ("standard", "fast"):
        refuse("model.speed: must be standard or fast")
    if found.get("inference_geo"):
        answer["inference_geo"] = found["inference_geo"]
    return answer


def tools(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or len(value) > 256:
        refuse("tools: must be a list of at most 256")
    found = [_tool(each, f"tools.{number}.") for number, each in enumerate(value)]
    names = [each["name"] for each in found if each["type"] == "custom"]
    if len(names) != len(set(names)):
        refuse("tools: names must be unique")
    return found


def _tool(value: Any, where: str) -> dict[str, Any]:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "custom":
        found = shape(value, ("type", "name", "description", "input_schema"), (), where)
        if not _WORD.fullmatch(text(found["name"], f"{where}name")):
            refuse(f"{where}name: must be of letters, digits, _ and -")
        text(found["description"], f"{where}description")
        if not isinstance(found["input_schema"], dict) or found["input_schema"].get("type") != "object":
            refuse(f"{where}input_schema.type: must be object")
        return dict(found)
    if kind == "agent_toolset_20260401":
        found = shape(value, ("type",), ("default_config", "configs"), where)
        default = _permission(found.get("default_config") or {}, f"{where}default_config.")
        configs = [
            {**_permission(each, f"{where}configs.", named=True, default=default), "name": each["name"]}
            for each in found.get("configs") or ()
        ]
        return {"type": kind, "default_config": default, "configs": configs}
    if kind == "mcp_toolset":
        refuse(f"{where}mcp_server_name: no such server in mcp_servers")
    refuse(f"{where}type: must be custom, agent_toolset_20260401 or mcp_toolset")


def _permission(
    value: Any, where: str, *, named: bool = False, default: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    name = ("name",) if named else ()
    found = shape(value, name, ("enabled", "permission_policy", *(("type",) if named else ())), where)
    if named and found["name"] not in BUILT_INS:
        refuse(f"{where}name: unknown tool")
    otherwise = default or {"enabled": True, "permission_policy": {"type": "always_allow"}}
    policy = found.get("permission_policy") or otherwise["permission_policy"]
    if policy.get("type") not in POLICIES:
        refuse(f"{where}permission_policy.type: must be always_allow, always_ask or auto")
    enabled = found.get("enabled")
    answer = {"enabled": otherwise["enabled"] if enabled is None else enabled, "permission_policy": policy}
    return {**answer, "type": found["name"]} if named else answer


def environment(value: Any) -> dict[str, Any]:
    """The config of an environment, as it is given back: with everything that holds."""
    found = shape(value or {"type": "cloud"}, ("type",), ("networking", "packages"), "config.")
    if found["type"] != "cloud":
        refuse("config.type: only cloud is served here")
    packages = shape(found.get("packages") or {}, (), (*PACKAGES, "type"), "config.packages.")
    given = found.get("networking") or {"type": "unrestricted"}
    network: dict[str, Any] = {"type": given.get("type")}
    if network["type"] == "limited":
        keys = ("allowed_hosts", "allow_mcp_servers", "allow_package_managers")
        shape(given, ("type",), keys, "config.networking.")
        network |= {
            "allowed_hosts": given.get("allowed_hosts") or [],
            "allow_mcp_servers": bool(given.get("allow_mcp_servers")),
            "allow_package_managers": bool(given.get("allow_package_managers")),
        }
    elif network["type"] == "unrestricted":
        shape(given, ("type",), (), "config.networking.")
    else:
        refuse("config.networking.type: must be unrestricted or limited")
    full = {"type": "packages", **{name: packages.get(name) or [] for name in PACKAGES}}
    return {"type": "cloud", "networking": network, "packages": full}


def budget(value: Any) -> dict[str, Any]:
    found = shape(value, ("type", "max_list_cost"), (), "budget.")
    cost = shape(found["max_list_cost"], ("amount", "currency"), (), "budget.max_list_cost.")
    if found["type"] != "limit":
        refuse("budget.type: must be limit")
    if not isinstance(cost["amount"], str) or not re.fullmatch(r"[1-9]\d{0,11}", cost["amount"]):
        refuse("budget.max_list_cost.amount: must be whole minor units as a text")
    if cost["currency"] != "USD":
        refuse("budget.max_list_cost.currency: must be USD")
    return {"type": "limit", "max_list_cost": dict(cost)}


def event(value: Any, where: str = "events.") -> dict[str, Any]:
    """One event of a client."""
    kind = value.get("type") if isinstance(value, dict) else None
    check = _EVENTS.get(str(kind))
    if check is None:
        refuse(f"{where}type: {str(kind)[:64]} is not served here")
    check(value, where)
    return dict(value)


def _message(value: Any, where: str) -> None:
    shape(value, ("type", "content"), (), where)
    _content(value["content"], f"{where}content.", ("text", "image", "document"))
    if not value["content"]:
        refuse(f"{where}content: must not be empty")


def _result(value: Any, where: str) -> None:
    shape(value, ("type", "custom_tool_use_id"), ("content", "is_error"), where)
    _content(value.get("content") or [], f"{where}content.", ("text", "image", "document", "search_result"))
    if not isinstance(value.get("is_error") or False, bool):
        refuse(f"{where}is_error: must be true or false")


def _confirmation(value: Any, where: str) -> None:
    shape(value, ("type", "tool_use_id", "result"), ("deny_message",), where)
    if value["result"] not in ("allow", "deny"):
        refuse(f"{where}result: must be allow or deny")


def _interrupt(value: Any, where: str) -> None:
    shape(value, ("type",), ("session_thread_id",), where)


_EVENTS: dict[str, Callable[[Any, str], None]] = {
    "user.message": _message,
    "user.interrupt": _interrupt,
    "user.custom_tool_result": _result,
    "user.tool_confirmation": _confirmation,
}


def _content(value: Any, where: str, kinds: Collection[str]) -> None:
    if not isinstance(value, list):
        refuse(f"{where}: must be a list")
    for block in value:
        if not isinstance(block, dict) or block.get("type") not in kinds:
            refuse(f"{where}type: must be one of {', '.join(kinds)}")
        if block["type"] == "text":
            shape(block, ("type", "text"), (), where)
            text(block["text"], f"{where}text")
