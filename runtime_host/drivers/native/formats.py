"""How a model is told what its answer is to be. Pure.

Must not know any I/O. Invariant: the words ask, and nothing here promises; whether the answer meets the schema
is judged by the runtime.
"""

import json
import re

from runtime_host.definitions import JsonSchemaFormat, ResponseFormat

_ASKED = (
    "Answer with one JSON value that meets the following JSON schema, and with nothing else: no words around it "
    "and no code fence."
)


def instructions_with(instructions: str, wanted: ResponseFormat | None) -> str:
    """The system text of a turn, with what its answer is to be."""
    if not isinstance(wanted, JsonSchemaFormat):
        return instructions
    schema = json.dumps(wanted.json_schema, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    asked = f"{_ASKED}\n\n{schema}"
    return f"{instructions}\n\n{asked}" if instructions.strip() else asked


def schema_name(name: str | None) -> str:
    """The name of a schema as providers take it: letters, digits, underscores and dashes, at most 64."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name or "")[:64] or "answer"
