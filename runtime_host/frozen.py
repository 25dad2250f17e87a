"""The base of every public value: validated when it is made, unchangeable afterwards.

Owns how a value is refused. Must not know what the values mean. Invariants: what a caller changes later in
what it gave is not in the value; a refusal is `AgentDriverConfigurationError` and names the field, never
what stood in it.
"""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from runtime_host.canonical import freeze
from runtime_host.errors import AgentDriverConfigurationError

MAX_SAFE_INTEGER = 2**53 - 1
"""Beyond it a JSON reader elsewhere may see another number."""

NonBlank = Annotated[str, StringConstraints(strict=True, min_length=1, pattern=r"\S")]
Text = Annotated[str, StringConstraints(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
PositiveInteger = Annotated[int, Field(strict=True, gt=0, le=MAX_SAFE_INTEGER)]
JsonObject = Annotated[dict[str, Any], AfterValidator(freeze)]
"""A JSON object, copied and frozen to its depth; NaN, bytes and functions are refused."""


def configuration_error(what: str, error: ValidationError, place: str = "") -> AgentDriverConfigurationError:
    """A validation failure in one sentence that names the field and never repeats the value."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    steps = [str(step) for step in first["loc"]]
    field = ".".join([place, *steps] if place else steps) or what
    said = first["msg"].removeprefix("Value error, ").rstrip(".")
    if first["type"] == "union_tag_invalid":
        # The only message that repeats what was given.
        said = "this kind is not taken"
    return AgentDriverConfigurationError(
        f"The {what} option {field} is not valid: {said}.",
        details={"field": field, "problem": first["type"]},
    )


if TYPE_CHECKING:
    _Base = BaseModel
else:
    # Hidden from type checkers, which take the signature of a construction from the fields.

    class _Refusing(type(BaseModel)):
        """Makes the construction of a value refuse in this library's words."""

        def __call__(cls, *args, **kwargs):
            try:
                return super().__call__(*args, **kwargs)
            except ValidationError as error:
                raise configuration_error(cls.called, error, cls.place) from None

    class _Base(BaseModel, metaclass=_Refusing):
        pass


class Frozen(_Base):
    """A value of the public surface.

    Attributes:
        called: what a refusal calls it.
        place: where it stands in the options, as a refusal tells the field.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    called: ClassVar[str] = "value"
    place: ClassVar[str] = ""
