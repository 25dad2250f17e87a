"""Mounts as the person enters them: forms for adding and changing one, and what has to be seen before it is used.

Owns what is asked and how answers become settings and policies. Must not know how a mount is kept or used. Invariants:
what was refused is said with everything that was entered still there; a program that would be started, and tools that
another side tells, are shown whole before anybody agrees; a policy field that was not asked stays as it is.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from desktop.dialog.wire import FORM_BYTES, MOST_FIELDS
from desktop.dialogs import Answer, Approval, DeleteConfirmation, Form, FormField, FormOption
from runtime_host.errors import AgentRuntimeError
from runtime_host.loop.mounts import NOTHING_CHANGED, MountBook, MountReport, Refreshed
from runtime_host.loop.plugins.base import Setting
from runtime_host.storage.rows import MountRow

if TYPE_CHECKING:
    from desktop.app import Host

DECISIONS: Final = (
    FormOption("allow", "Done at once"),
    FormOption("approval", "Asks first"),
    FormOption("deny", "Refused"),
)
_SAME: Final = "same"
_OF_TOOL: Final = (FormOption(_SAME, "As said above"), *DECISIONS)
_CHOICES: Final = {"stdio": "A program on this computer (stdio)", "http": "A server at an address (http)"}
"""What choices of settings mean, where the word alone does not say it."""
MOST_TOOLS: Final = 8
"""Of those whose own word can be changed in the dialog; of the others by the command line."""
ASKS_FIRST: Final = {"read": "approval", "write": "approval"}
"""What is said of a mount whose tools another side tells: what only reads is its own word."""
CAREFUL: Final = {"read": "allow", "write": "approval"}


async def add(host: "Host", book: MountBook) -> str | None:
    """Ask for a new mount until one could be kept; its alias, or None when the person does not want to."""
    report = await book.report()
    dialogs = await host.trusted()
    first = Form(
        title="Add a mount",
        lead="A mount lets this agent use something: a folder, the web, a server of tools. What of it is asked about "
        "before it is done, you say next.",
        fields=(
            FormField(
                "plugin",
                "choice",
                "What it is to use",
                options=tuple(FormOption(plugin, title) for plugin, title in report.plugins),
                required=True,
            ),
            FormField("alias", "line", "Name", hint="A short name; tools are called by it", required=True, bound=64),
        ),
        confirm="Go on",
    )
    chosen = await dialogs.ask_form(first)
    if chosen is None:
        return None
    plugin, alias = str(chosen["plugin"]), str(chosen["alias"])
    found = book.plugin(plugin)
    settings = found.settings
    fields = (
        FormField("alias", "line", "Name", alias, required=True, bound=64),
        *_setting_fields(settings, {}),
        *_policy_fields(ASKS_FIRST if found.remote else CAREFUL),
    )
    form = Form(title="Add a mount", about=dict(report.plugins)[plugin], fields=fields, confirm="Add")
    while True:
        answers = await dialogs.ask_form(form)
        if answers is None:
            return None
        try:
            row = await book.add(
                plugin, str(answers["alias"]), config=_config(settings, answers, {}), policy=_policy(answers, {})
            )
        except (AgentRuntimeError, ValueError) as refused:
            form = _again(form, answers, refused)
            continue
        await look_after(host, book, row.alias, f"{row.alias} is added.")
        return row.alias


async def edit(host: "Host", book: MountBook, report: MountReport) -> bool:
    """Ask what is to be otherwise about a mount; whether anything was changed."""
    row, dialogs = report.row, await host.trusted()
    counted = len(row.policy.get("rules", ()))
    words = f"{counted} rule{'' if counted == 1 else 's'} let calls through without asking."
    forget = FormField("forget", "switch", "Forget what was always allowed", False, help=words)
    fields = (
        *_setting_fields(report.settings, row.public_config),
        FormField("account", "line", "Account", str(row.public_config.get("account", "")), help="What you call it."),
        *_policy_fields(row.policy),
        *((forget,) if counted else ()),
        *(
            FormField(
                f"tool-{number}", "choice", line.name, str(row.policy.get("tools", {}).get(line.name, _SAME)), _OF_TOOL
            )
            for number, line in enumerate(report.tools[:MOST_TOOLS])
        ),
    )
    form = Form(title="Change the mount", about=f"{row.alias} ({report.plugin_title})", fields=fields[:MOST_FIELDS])
    while True:
        answers = await dialogs.ask_form(form)
        if answers is None:
            return False
        config = _config(report.settings, answers, row.public_config)
        policy = _policy(answers, row.policy, tuple(line.name for line in report.tools[:MOST_TOOLS]))
        if config == row.public_config and policy == row.policy:
            return False
        try:
            await book.edit(
                row.alias,
                config=config if config != row.public_config else None,
                policy=policy if policy != row.policy else None,
            )
        except (AgentRuntimeError, ValueError) as refused:
            form = _again(form, answers, refused)
            continue
        await look_after(host, book, row.alias, f"{row.alias} is set up so.")
        return True


async def rename(host: "Host", book: MountBook, row: MountRow) -> bool:
    """Ask what a mount is to be called; whether it is called otherwise now."""
    form = Form(
        title="Rename the mount",
        about=row.alias,
        fields=(FormField("alias", "line", "Name", row.alias, required=True, bound=64),),
        effect="Its settings, credential and rules go with it. Calls that wait for you are not made any more.",
        confirm="Rename",
    )
    dialogs = await host.trusted()
    while True:
        answers = await dialogs.ask_form(form)
        if answers is None or answers["alias"] == row.alias:
            return False
        try:
            await book.rename(row.alias, str(answers["alias"]))
        except AgentRuntimeError as refused:
            form = _again(form, answers, refused)
            continue
        return True


async def switch(host: "Host", book: MountBook, report: MountReport) -> bool:
    """Switch a mount off, which takes something away and is not asked about; to switch it on the person says so."""
    alias = report.row.alias
    if report.state == "on":
        await book.switch(alias, "off")
        return True
    answers = await (await host.trusted()).ask_form(
        Form(
            title="Switch the mount on",
            about=f"{alias} ({report.plugin_title})",
            detail=report.state_words,
            fields=(
                FormField(
                    "to",
                    "choice",
                    "From now on it is",
                    "on",
                    (
                        FormOption("on", "On", "This agent may use it, as its policy says."),
                        FormOption("inherit", "As usual", "As it is for every agent that says nothing else."),
                    ),
                    required=True,
                ),
            ),
            confirm="Switch on",
        )
    )
    if answers is None:
        return False
    if report.state == "other-version":
        await book.take_over(alias)
    await book.switch(alias, "inherit" if answers["to"] == "inherit" else "on")
    await look_after(host, book, alias, f"{alias} is switched on.")
    return True


async def remove(host: "Host", book: MountBook, report: MountReport) -> bool:
    """Show what goes with a mount, ask, and remove it; whether it is gone."""
    goes = ["Its settings and rules. Conversations stay, and with them what it was used for."]
    if report.credential.kind != "none":
        goes.append("Its credential, which cannot be had back.")
    asked = DeleteConfirmation(title=f"{report.row.alias} ({report.plugin_title})", what="mount", goes=tuple(goes))
    if not await (await host.trusted()).confirm(asked):
        return False
    await book.remove(report.row.alias)
    return True


async def look_at(host: "Host", book: MountBook, alias: str) -> bool:
    """Show what has to be agreed to before a mount is used, a program or tools; whether it can be used."""
    consent = await book.consent(alias)
    if consent is not None:
        agreed = await (await host.trusted()).ask_approval(
            Approval(
                operation_id=f"consent:{alias}:{consent.digest}",
                heading="May this be started?",
                yes="Agree",
                no="Do not agree",
                tool="",
                mount=alias,
                effect=consent.effect,
                parts=tuple((label, "text", text) for label, text in consent.shown),
                exact=False,
            )
        )
        if agreed is None or not agreed.approve:
            return False
        await book.agree(alias, consent.digest)
    row = next((row for row in await book.all() if row.alias == alias), None)
    if row is None or not book.plugin(row.plugin).remote:
        return True
    return await look_at_tools(host, book, alias)


async def look_after(host: "Host", book: MountBook, alias: str, done: str) -> None:
    """As `look_at`, after something was done that stays whatever comes of looking.

    Nobody is asked for tools where a person has to sign in first: the page says so.

    Raises:
        AgentRuntimeError: the other side did not tell its tools; with `done` in its sentence.
    """
    report = await book.report()
    found = next((each for each in report.mounts if each.row.alias == alias), None)
    if found is None or (found.credential_shape.kind == "sign-in" and found.credential.kind == "none"):
        return
    try:
        await look_at(host, book, alias)
    except AgentRuntimeError as fault:
        why = fault.message.removesuffix(NOTHING_CHANGED).rstrip()
        raise AgentRuntimeError(f"{done} Its tools are not known yet: {why}", code=fault.error_code) from fault


async def look_at_tools(host: "Host", book: MountBook, alias: str) -> bool:
    """Ask the other side for its tools, show them where they are not what was agreed to; whether they can be used.

    Raises:
        AgentRuntimeError: it did not tell.
    """
    told = await book.refresh(alias)
    if told.same:
        return True
    agreed = await (await host.trusted()).ask_approval(
        Approval(
            operation_id=f"tools:{alias}:{told.digest}",
            heading="May these tools be offered?",
            yes="Offer them",
            no="Do not offer them",
            tool="",
            mount=alias,
            effect=_changes(told),
            why="The other side tells them, in its own words. They are not checked.",
            parts=_tool_parts(told),
            exact=False,
        )
    )
    if agreed is None or not agreed.approve:
        return False
    await book.accept_tools(alias, told.digest)
    return True


def _changes(told: Refreshed) -> str:
    parts = [
        f"{words}: {', '.join(names[:20])}{' and more' if len(names) > 20 else ''}."
        for words, names in (("New", told.added), ("Changed", told.changed), ("Gone", told.removed))
        if names
    ]
    return " ".join(parts) or "It tells no tools."


def _tool_parts(told: Refreshed) -> tuple[tuple[str, Any, str], ...]:
    """Every tool with its whole description; a long list as one text, so that none is left out."""
    said = [(f"{name} · {'only reads, it says' if effect == 'read' else 'changes things'}", text or "(no description)")
            for name, text, effect in told.tools]  # fmt: skip
    skipped = [(name, why) for name, why in told.skipped]
    if skipped:
        said.append(("Left out", "\n".join(f"{name}: {why}" for name, why in skipped)))
    if len(said) > 60:
        return (("tools", "text", "\n\n".join(f"{label}\n{text}" for label, text in said)),)
    return tuple((label, "text", text) for label, text in said)


# ------------------------------------------------------------------------------------ fields


def _setting_fields(settings: tuple[Setting, ...], config: Mapping[str, Any]) -> tuple[FormField, ...]:
    bound = max(512, min(8_192, FORM_BYTES // 2 // max(1, len(settings))))
    return tuple(_setting_field(setting, config.get(setting.name), bound) for setting in settings)


def _setting_field(setting: Setting, value: Any, bound: int) -> FormField:
    name = f"set-{setting.name}"
    if setting.kind == "boolean":
        return FormField(name, "switch", setting.title, value is True, help=setting.help)
    required = setting.required
    if setting.kind == "strings":
        text = "\n".join(map(str, value)) if isinstance(value, list | tuple) else ""
        words = " ".join(filter(None, (setting.help, "One a line.")))
        return FormField(name, "text", setting.title, text, help=words, required=required, bound=bound)
    shown = "" if value is None else str(value)
    if setting.choices:
        options = tuple(FormOption(one, _CHOICES.get(one, one)) for one in setting.choices)
        return FormField(name, "choice", setting.title, shown, options, help=setting.help, required=required)
    return FormField(name, "line", setting.title, shown, help=setting.help, required=required, bound=min(bound, 4_096))


def _config(settings: tuple[Setting, ...], answers: Mapping[str, Answer], before: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as they were entered; one that was left empty is not set."""
    config = dict(before)
    for setting in settings:
        answer = answers.get(f"set-{setting.name}")
        value: Any = answer
        if setting.kind == "strings":
            value = [line.strip() for line in str(answer or "").splitlines() if line.strip()]
        elif setting.kind == "number":
            value = _number(str(answer or ""))
        # A switch that was never set and is off says nothing.
        empty = value in ("", None) or (value in ([], False) and setting.name not in before)
        if empty:
            config.pop(setting.name, None)
        else:
            config[setting.name] = value
    if account := str(answers.get("account", "")).strip():
        config["account"] = account
    elif "account" in answers:
        config.pop("account", None)
    return config


def _number(text: str) -> int | float | str | None:
    """A number, nothing, or what was typed: that it is no number is said where settings are checked."""
    try:
        return int(text) if text else None
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text


def _policy_fields(policy: Mapping[str, Any]) -> tuple[FormField, ...]:
    return (
        FormField("read", "choice", "What only reads", str(policy.get("read", "allow")), DECISIONS, required=True),
        FormField(
            "write", "choice", "What changes something", str(policy.get("write", "allow")), DECISIONS, required=True
        ),
    )


def _policy(answers: Mapping[str, Answer], before: Mapping[str, Any], tools: tuple[str, ...] = ()) -> dict[str, Any]:
    policy = {**before, "read": str(answers["read"]), "write": str(answers["write"])}
    for effect in ("read", "write"):
        # What was not said stays unsaid.
        if effect not in before and policy[effect] == "allow":
            del policy[effect]
    said = dict(before.get("tools", {}))
    for number, tool in enumerate(tools):
        answer = str(answers.get(f"tool-{number}", said.get(tool, _SAME)))
        said.pop(tool, None)
        if answer != _SAME:
            said[tool] = answer
    if said or "tools" in before:
        policy["tools"] = said
    if answers.get("forget") is True:
        policy.pop("rules", None)
    return policy


def _again(form: Form, answers: Mapping[str, Answer], refused: Exception) -> Form:
    """The form once more, with what was wrong at the field it is about."""
    words = refused.message if isinstance(refused, AgentRuntimeError) else str(refused)
    details = refused.details if isinstance(refused, AgentRuntimeError) else {}
    at = "alias" if "alias" in details else f"set-{details.get('setting', '')}"
    known = {field.id for field in form.fields}
    return form.again(answers, "" if at in known else words, {at: words} if at in known else None)
