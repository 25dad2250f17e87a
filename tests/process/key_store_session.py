"""`python -m tests.process.key_store_session`: `Credentials` in a process of its own, told what to do line by line.

A process of its own, because keyring remembers for the whole process what it found. Reads one JSON array
[method, ...] a line, answers with one JSON object: what came of it, and what was said meanwhile. No part of it
is a test: test_secret_service.py is.
"""

import asyncio
import json
import sys
from dataclasses import asdict
from typing import Any

from desktop.credentials import Credentials
from desktop.key_store import KeyStoreState
from desktop.secret import Secret
from runtime_host.connectors.base import SecretRef
from runtime_host.errors import ConnectorError


async def outcome(keys: Credentials, method: str, *words: str) -> dict[str, Any]:
    try:
        match method:
            case "state":
                result: Any = await keys.state()
            case "store":
                result = await keys.store(words[0], Secret(words[1]))
            case "resolve":
                result = await keys.resolve(SecretRef(kind="keyring", name=words[0]))
            case "delete":
                result = await keys.delete(SecretRef(kind="keyring", name=words[0]))
            case _:
                raise ValueError(method)
    except ConnectorError as refusal:
        return {"code": refusal.error_code, "sentence": refusal.message}
    if isinstance(result, KeyStoreState):
        return asdict(result)
    if isinstance(result, SecretRef):
        return {"stored": result.name}
    return {"value": result.reveal() if isinstance(result, Secret) else result}


async def main(profile: str, patience_s: float) -> int:
    said: list[str] = []
    keys = Credentials(profile, slow_after_s=1.0, look_s=1.0, patience_s=patience_s, on_slow=said.append)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        answer = await outcome(keys, *json.loads(line))
        print(json.dumps({**answer, "said": said}), flush=True)
        said.clear()
    await keys.aclose()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], float(sys.argv[2]))))
