"""The base class of groups of settings, and a check of all."""

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict

from shale.core.settings_values import is_too_large


class Section(BaseModel):
    """A group of settings; unknown keys are errors, and values are immutable after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True)


def too_large_integers(model: BaseModel, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the settings whose integer exceeds 64 bits, which the engine could not store."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from too_large_integers(value, (*above, name))
        elif isinstance(value, int) and is_too_large(value):
            yield (*above, name)
