"""What is known of models, as data.

Owns facts that someone checked. Must not know connectors, drivers or any SDK. Invariant: a model that
is not listed is unknown, and unknown never reads as able.
"""

from typing import NamedTuple


class ModelInfo(NamedTuple):
    """Facts about one model.

    Attributes:
        context_tokens: the whole window, input and output together; None when nobody said.
        max_output_tokens: our own cap on one reply; None leaves it to the server.
        reasons: whether it has a reasoning mode that can be asked for.
        tiny: good for a first look, useless as an agent; the picker says so.
        temperature, top_p: what its makers recommend; None leaves it to the server.
    """

    id: str
    label: str
    context_tokens: int | None
    max_output_tokens: int | None = None
    reasons: bool = False
    images: bool = False
    tiny: bool = False
    temperature: float | None = None
    top_p: float | None = None


SMOLLM2 = ModelInfo(
    id="SmolLM2-135M-Instruct",
    label="SmolLM2 135M",
    context_tokens=2048,
    max_output_tokens=640,
    tiny=True,
    temperature=0.2,
    top_p=0.9,
)

BUILTIN_MODELS: dict[str, ModelInfo] = {SMOLLM2.id: SMOLLM2}
"""Models the program brings along, by id."""

__all__ = ["BUILTIN_MODELS", "SMOLLM2", "ModelInfo"]
