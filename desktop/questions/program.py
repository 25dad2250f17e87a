"""The program of a harness, as the person enters it: a trusted form, and what is wrong with an answer.

Owns what is asked. Must not know how programs are looked at. Invariant: which program is started is typed or chosen in
the trusted dialog, or found by rule, and comes from nowhere else.
"""

from typing import TYPE_CHECKING

from desktop.dialogs import Form, FormField
from desktop.harness_setup import PATH_BYTES, ProgramRefusedError

if TYPE_CHECKING:
    from desktop.app import Host


async def pick(host: "Host", driver: str) -> bool:
    """Ask until a program was named that can be used; whether one was."""
    kind, now = host.harnesses.kinds[driver], host.harnesses.standing(driver)
    form = Form(
        title=f"Pick the program of {kind.name}",
        lead="It is started to say its version, with an empty home and without your environment.",
        fields=(
            FormField(
                "path",
                "path",
                "Program",
                now.path if now.picked else "",
                hint=f"/usr/local/bin/{kind.program}",
                help=f"Known to work: {kind.supported}.",
                required=True,
                bound=PATH_BYTES,
            ),
        ),
        effect=f"Remuda starts it for each conversation with {kind.name}.",
        confirm="Use program",
    )
    dialogs = await host.trusted()
    while (answers := await dialogs.ask_form(form)) is not None:
        try:
            await host.harnesses.pick(driver, str(answers.get("path", "")))
        except ProgramRefusedError as refused:
            form = form.again(answers, at={"path": refused.message})
        else:
            return True
    return False
