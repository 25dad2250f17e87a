"""The most that a conversation at a service may cost, as the person enters it: a trusted form.

Owns what is asked. Must not know how an amount is kept. Invariant: an amount is typed in the trusted dialog or on the
command line, and comes from nowhere else.
"""

from typing import TYPE_CHECKING

from desktop.choices import HARNESSES
from desktop.dialogs import Form, FormField
from desktop.managed import CapRefusedError

if TYPE_CHECKING:
    from desktop.app import Host


async def cap(host: "Host", driver: str) -> bool:
    """Ask until an amount was given that can be kept, or none; whether that was settled."""
    words = HARNESSES[driver]
    form = Form(
        title=f"Cost cap of {words.name}",
        lead=f"{words.service} counts what a conversation costs by its list prices, and holds it at this amount.",
        fields=(
            FormField(
                "cents",
                "line",
                "US cents for each conversation",
                host.managed.cap(driver),
                hint="250 for $2.50",
                help="Whole cents. Empty: no cap. What goes on when it is reached waits; it is not thrown away.",
                bound=64,
            ),
        ),
        effect="It holds for conversations that begin from now on. Those that are there keep theirs.",
        confirm="Keep",
    )
    dialogs = await host.trusted()
    while (answers := await dialogs.ask_form(form)) is not None:
        try:
            await host.managed.set_cap(driver, str(answers.get("cents", "")))
        except CapRefusedError as refused:
            form = form.again(answers, at={"cents": refused.message})
        else:
            return True
    return False
