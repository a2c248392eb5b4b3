"""Refuses secrets on the command line: every user of the machine can read it in the list of processes."""

from collections.abc import Sequence
from typing import get_args

from pydantic import BaseModel, SecretStr

from shale.core.url_secrets import without_url_secrets, without_userinfo
from shale.errors import InvalidRequestError
from shale.service.config.config_sources import section_of
from shale.service.config.source_names import PREFIX


def refuse_secret(model: type[BaseModel], name: str, value: str) -> None:
    """Check one assignment of ``--set``.

    Raises:
        InvalidRequestError: the setting is a secret, or the value is a URL with a password or a signature; nothing of
            the value is in the message.
    """
    names = name.split(".")
    if _is_secret(model, names) or ("://" in value and without_url_secrets(without_userinfo(value)) != value):
        variable = f"{PREFIX}{'__'.join(names)}".upper()
        raise InvalidRequestError(
            f"--set {name}: other users can read a secret on the command line: use a secret file, the variable "
            f"{variable} or a settings file"
        )


def _is_secret(model: type[BaseModel], names: Sequence[str]) -> bool:
    for name in names:
        field = model.model_fields.get(name)
        section = None if field is None else section_of(field.annotation)
        if section is None:
            return field is not None and _has_secret_type(field.annotation)
        model = section
    return False


def _has_secret_type(annotation: object) -> bool:
    return annotation is SecretStr or any(_has_secret_type(each) for each in get_args(annotation))
