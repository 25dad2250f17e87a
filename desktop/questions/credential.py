"""The credential of a mount as the person gives it: typed into the trusted dialog, sealed, and never shown again.

Owns what is asked. Must not know how it is sealed or what uses it. Invariant: what was typed goes from the dialog to
`MountBook.attach`, and nowhere else; nothing of it comes back.
"""

from typing import TYPE_CHECKING

from desktop.dialogs import DeleteConfirmation, Form, FormField
from desktop.secret import Secret
from runtime_host.errors import AgentRuntimeError
from runtime_host.loop.mounts import MountBook, MountReport

if TYPE_CHECKING:
    from desktop.app import Host


async def attach(host: "Host", book: MountBook, report: MountReport) -> bool:
    """Ask for a mount's credential until one could be sealed; whether it was.

    Raises:
        AgentRuntimeError: this mount takes none that could be typed.
    """
    names = fields_of(report)
    again = report.credential.kind != "none"
    form = Form(
        title="Another credential" if again else "Add a credential",
        about=f"{report.row.alias} ({report.plugin_title})",
        fields=(
            *(
                FormField(f"field-{number}", "secret", label, required=True, bound=4_096)
                for number, (_, label) in enumerate(names)
            ),
            FormField("account", "line", "Account", report.credential.account, help="What you call it.", bound=512),
        ),
        effect="It is sealed in this agent’s file, under a key in this computer’s key store. It is used for calls of "
        "this mount alone. The agent and the window never see it.",
        confirm="Keep it",
    )
    dialogs = await host.trusted()
    while True:
        answers = await dialogs.ask_form(form)
        if answers is None:
            return False
        given = {name: _reveal(answers[f"field-{number}"]) for number, (name, _) in enumerate(names)}
        try:
            await book.attach(report.row.alias, given, str(answers["account"]))
        except AgentRuntimeError as refused:
            form = form.again(answers, refused.message)
            continue
        return True


async def detach(host: "Host", book: MountBook, report: MountReport) -> bool:
    """Ask and take a mount's credential away; whether it is gone."""
    signed_in = report.credential_shape.kind == "sign-in"
    asked = DeleteConfirmation(
        title=f"{report.row.alias} ({report.plugin_title})",
        what="credential",
        goes=(
            "The sign-in that is kept for this mount."
            if signed_in
            else "The credential that is sealed for this mount.",
            "Until it has another one, calls that need it are refused.",
        ),
    )
    if not await (await host.trusted()).confirm(asked):
        return False
    if signed_in:
        await book.sign_out(report.row.alias)
    else:
        await book.detach(report.row.alias)
    return True


def fields_of(report: MountReport) -> tuple[tuple[str, str], ...]:
    """(name, label) of what a mount's credential is made of.

    Raises:
        AgentRuntimeError: it takes none that could be typed.
    """
    shape = report.credential_shape
    if shape.kind == "fields" and shape.fields:
        return tuple((name, name) for name in shape.fields)
    if shape.kind == "token":
        return (("token", "Token"),)
    why = {"sign-in": "One signs in there instead.", "none": "It takes no credential."}.get(shape.kind, "")
    raise AgentRuntimeError(f"{report.row.alias} takes no credential that is typed. {why}", code="NO_CREDENTIAL_TAKEN")


def _reveal(answer: object) -> str:
    return answer.reveal() if isinstance(answer, Secret) else ""
