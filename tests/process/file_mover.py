"""A program that moves one file with a managed harness, and is killed while it does.

python -m tests.process.file_mover openai|claude BASE_URL FOLDER STORE upload|download
"""

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace

from runtime_host.storage.sqlite import open_agent_store
from tests.loopback.transfers import Bench, KindName


async def move(name: KindName, base_url: str, folder: Path, store: Path, way: str) -> None:
    """Say where the session is found again, then move `in.txt` there or the session's file to `out.txt`."""
    kept = await open_agent_store(store, profile="mover", agent="assistant")
    bench = Bench(name, SimpleNamespace(base_url=base_url), folder, kept)
    session = await bench.talked()
    print(json.dumps(session.reference().model_dump(mode="json")), flush=True)
    if way == "upload":
        await session.upload_file(path="in.txt", media_type="text/plain")
    else:
        [artifact] = await session.artifacts()
        await session.download_artifact(reference=str(artifact.reference), path="out.txt")
    print("moved", flush=True)


if __name__ == "__main__":
    kind, url, files, file, which = sys.argv[1:]
    asyncio.run(move("openai" if kind == "openai" else "claude", url, Path(files), Path(file), which))
