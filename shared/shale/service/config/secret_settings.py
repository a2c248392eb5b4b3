"""Refuses secrets on the command line: every user of the machine can read it in the list of processes."""

from collections.abc import Mapping, Sequence
from typing import get_args

from pydantic import BaseModel, SecretStr

from shale.core.url_secrets import without_url_secrets, without_userinfo
from shale.errors import InvalidRequestError
from shale.service.config.config_sources import command_line_value, section_of
from shale.service.config.secret_url import SecretUrl
from shale.service.config.source_names import PREFIX
from shale.service.config.spark_section import SECRET_NAME


def refuse_secret(model: type[BaseModel], name: str, value: str) -> None:
    """Check one assignment of ``--set``.

    Raises:
        InvalidRequestError: the setting is a secret, or the value is a URL with a password or a signature; nothing of
            the value is in the message.
    """
    names = name.split(".")
    is_secret = _is_secret(model, names, command_line_value(value), f"{name}={value}")
    if is_secret or ("://" in value and without_url_secrets(without_userinfo(value)) != value):
        variable = f"{PREFIX}{'__'.join(names)}".upper()
        raise InvalidRequestError(
            f"--set {name}: other users can read a secret on the command line: use a secret file, the variable "
            f"{variable} or a settings file"
        )


def _is_secret(model: type[BaseModel], names: Sequence[str], value: object, text: str) -> bool:
    """Return whether a value sets a secret: that of a setting, or that of a section with its settings."""
    if not names:
        if isinstance(value, Mapping):
            return any(_is_secret(model, (name,), below, text) for name, below in value.items())
        return isinstance(value, list) and any(_is_secret(model, (), each, text) for each in value)
    field = model.model_fields.get(names[0])
    if field is None:
        return False
    section = section_of(field.annotation)
    if section is not None:
        return _is_secret(section, names[1:], value, text)
    if not _has_type(field.annotation, SecretStr):
        return False
    # Properties of Spark are secrets by their names.
    return not _has_type(field.annotation, SecretUrl) or bool(SECRET_NAME.search(text))


def _has_type(annotation: object, wanted: type) -> bool:
    return annotation is wanted or any(_has_type(each, wanted) for each in get_args(annotation))
