"""A profile with a history: conversations, their sessions, what was said.

    python -I -m tests.benchmarks.fill FOLDER CONVERSATIONS

Written through the stores, so that the host finds what it would have written itself.
"""

import asyncio
import sys
import time
from pathlib import Path

from desktop import paths
from desktop.agent_stores import AgentStores
from desktop.agents import FIRST_AGENT
from desktop.profile_store import ConversationRecord, ProfileTx, open_profile_store
from desktop.settings import Settings
from runtime_host.definitions import AgentDefinition
from runtime_host.session import SessionReference
from runtime_host.storage.base import AgentTx, ItemRecord, SessionRecord

SCOPE = "0" * 64
HOUR_MS = 3_600_000


async def fill(folder: Path, count: int) -> None:
    """Write `count` conversations of one session with one exchange each, an hour apart."""
    profile = paths.profile(folder)
    store = await open_profile_store(profile.store, profile=profile.name)
    settings = Settings(store)
    await settings.load()
    agents = AgentStores(profile, settings.profile_uuid)
    now_ms = int(time.time() * 1_000)

    def conversations(tx: ProfileTx) -> None:
        for number in range(count):
            reference = SessionReference(
                version=1,
                session_id=f"session-{number}",
                agent_id=FIRST_AGENT,
                scope_digest=SCOPE,
                driver_id="native.agent",
            )
            tx.put_conversation(
                ConversationRecord(
                    conversation_id=f"conversation-{number}",
                    title=f"Notes on chapter {number}",
                    pinned=number < 3,
                    archived=False,
                    created_ms=now_ms - number * HOUR_MS,
                    updated_ms=now_ms - number * HOUR_MS,
                    agent_id=FIRST_AGENT,
                )
            )
            tx.add_conversation_session(
                f"conversation-{number}", f"session-{number}", reference.model_dump(mode="json")
            )

    def sessions(tx: AgentTx) -> None:
        for number in range(count):
            created_ms = now_ms - number * HOUR_MS
            tx.put_session(
                SessionRecord(
                    session_id=f"session-{number}",
                    scope_digest=SCOPE,
                    created_ms=created_ms,
                    definition=AgentDefinition(id=FIRST_AGENT).model_dump(mode="json"),
                    options={},
                )
            )
            for position, (kind, text) in enumerate(
                (("user", "What does it say?"), ("reply", "It says **little**.\n"))
            ):
                tx.add_item(
                    ItemRecord(
                        item_id=f"item-{number}-{position}",
                        session_id=f"session-{number}",
                        run_id=None,
                        position=position,
                        kind=kind,  # type: ignore[arg-type]
                        state="complete",
                        text=text,
                        created_ms=created_ms,
                    )
                )

    await store.transact(conversations)
    agent = await agents.open(FIRST_AGENT)
    await agent.transact(sessions)
    await agents.aclose()
    await store.close()


if __name__ == "__main__":
    asyncio.run(fill(Path(sys.argv[1]), int(sys.argv[2])))
