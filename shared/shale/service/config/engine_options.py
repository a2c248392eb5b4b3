"""Builds the options of the engine from settings."""

from dataclasses import fields
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Options = TypeVar("Options", bound="DataclassInstance")


def options_from(options_cls: type[Options], settings: BaseModel, **values: object) -> Options:
    """Build an options dataclass from equally named settings.

    The option ``x``, or ``x_s`` in seconds, takes the setting ``x``.  Options without a setting keep their default.

    Args:
        options_cls: the dataclass to build.
        settings: the settings or the section with the values.
        values: options whose value is not that of an equally named setting.

    Raises:
        InvalidRequestError: the options are out of range or contradict each other.
    """
    known = type(settings).model_fields
    for field in fields(options_cls):
        name = field.name if field.name in known else field.name.removesuffix("_s")
        if field.name not in values and name in known:
            values[field.name] = getattr(settings, name)
    return options_cls(**values)
