"""A word of a model, in the form of each kind of API."""

import json
from typing import Any, Final

from runtime_host.connectors.base import Vendor
from tests.loopback.web_server import Reply

MODEL: Final = "some-model"
VENDORS: Final[tuple[Vendor, ...]] = ("openai", "anthropic", "openai-compatible")
SAYS: Final = {"openai": "/v1/responses", "anthropic": "/v1/messages", "openai-compatible": "/v1/chat/completions"}
"""Where each is asked."""


def event(kind: str, **more: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()


def good_word(vendor: Vendor) -> Reply:
    if vendor == "openai-compatible":
        frame = {"choices": [{"index": 0, "delta": {"content": "yes"}, "finish_reason": None}]}
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        body = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in (frame, end)) + b"data: [DONE]\n\n"
    elif vendor == "anthropic":
        message = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": MODEL}
        body = (
            event("message_start", message={**message, "usage": {"input_tokens": 3, "output_tokens": 1}})
            + event("content_block_start", index=0, content_block={"type": "text", "text": ""})
            + event("content_block_delta", index=0, delta={"type": "text_delta", "text": "yes"})
            + event("content_block_stop", index=0)
            + event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2})
            + event("message_stop")
        )
    else:
        item = {"id": "i", "type": "message", "role": "assistant", "content": [], "status": "in_progress"}
        text = {"item_id": "i", "output_index": 0, "content_index": 0}
        body = (
            event("response.created", response={"id": "r", "status": "in_progress"})
            + event("response.output_item.added", output_index=0, item=item)
            + event("response.output_text.delta", **text, delta="yes")
            + event("response.output_text.done", **text, text="yes")
            + event("response.completed", response={"id": "r", "status": "completed", "output": []})
        )
    return Reply(body, headers={"Content-Type": "text/event-stream"})
