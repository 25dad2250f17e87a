"""The mounts that agents are begun with. Pure.

Owns which of a list an agent has had. Must not know plugins' workings, drivers or desktops. Invariants: each entry of
a list is sown once for each agent, on whatever first opens it; what a person removed or changed stays so; a mount that
is taken over by a newer version is one that nobody changed the settings of in a way that the version does not know.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from runtime_host.canonical import FrozenDict
from runtime_host.loop.kept import Ground
from runtime_host.loop.mounts import MountRefusedError, checked_config, mount_row
from runtime_host.storage.base import AgentTx
from runtime_host.storage.rows import MountRow, SeedRow


class Seed(NamedTuple):
    """A mount that every agent is begun with.

    Attributes:
        closed: whether it is there and switched off.
        since: of which list it is; the same alias may come again in a later one.
    """

    alias: str
    plugin: str
    config: Mapping[str, Any] = FrozenDict()
    policy: Mapping[str, Any] = FrozenDict()
    closed: bool = False
    since: str = "1"


USUAL_SEEDS: tuple[Seed, ...] = (
    Seed("files", "workspace", policy=FrozenDict(read="allow", write="approval")),
    Seed("artifacts", "artifacts", policy=FrozenDict(read="allow")),
    Seed("web", "http", policy=FrozenDict(read="approval", write="approval"), closed=True),
)
"""What the desktop begins agents with: nothing that a plain chat would be offered."""


def sow(tx: AgentTx, ground: Ground, seeds: Iterable[Seed]) -> None:
    """Give an agent what it is begun with and has not had, and take over new versions of what it was given so."""
    for seed in seeds:
        plugin = ground.plugins.get(seed.plugin)
        if plugin is None:
            continue
        row = tx.row(MountRow, seed.alias)
        known = tx.row(SeedRow, seed.alias, seed.since)
        if known is None:
            outcome = "taken" if row is not None else "added"
            if row is None:
                tx.put_row(mount_row(ground, plugin, seed.alias, seed.config, seed.policy, closed=seed.closed))
            tx.put_row(SeedRow(alias=seed.alias, since=seed.since, outcome=outcome, at_ms=ground.now_ms()))
        elif known.outcome != "taken" and row is not None and row.plugin == plugin.id:
            _take_over(tx, ground, row, known)


def _take_over(tx: AgentTx, ground: Ground, row: MountRow, known: SeedRow) -> None:
    plugin = ground.plugins[row.plugin]
    if row.tool_version == plugin.version:
        return
    try:
        checked_config(plugin, row.public_config, with_credential=row.secret_ref is not None)
    except MountRefusedError:
        # Refused at each call until a person looked at it.
        return
    now_ms = ground.now_ms()
    tx.put_row(msgspec.structs.replace(row, tool_version=plugin.version, updated_ms=now_ms))
    tx.put_row(msgspec.structs.replace(known, outcome="taken over", at_ms=now_ms, told=False))
