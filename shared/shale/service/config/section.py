"""The base class of groups of settings."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A group of settings; unknown keys are errors, and values are immutable after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True)
