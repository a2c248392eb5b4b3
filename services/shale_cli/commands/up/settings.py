"""``shale up --set``: settings of the daemons on the command line."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, get_args

from pydantic import BaseModel, SecretStr

from shale.core.suggestions import suggest
from shale.errors import InvalidRequestError
from shale.service.config.config_sources import Names, all_settings, known_setting, section_of
from shale.service.config.settings import command_line_value
from shale.service.config.source_names import PREFIX
from shale_cli.framework.daemons import settings_class

ROLES = ("writer", "compactor", "gc", "reader")
_RESP_PORT = 6379


class RoleSettings(NamedTuple):
    """The settings of one daemon, as its command line and as variables."""

    arguments: list[str]
    variables: dict[str, str]


def daemon_settings(assignments: Sequence[str]) -> dict[str, RoleSettings]:
    """Return the command line and the variables of each daemon for these assignments.

    Secrets are variables, because every user of the machine can read the command line of a process.

    ``name=value`` goes to all daemons that have the setting, ``writer.name=value`` to the writer.  Writer and reader
    listen on the same host, so the reader's Redis port is the one after the writer's.

    Raises:
        InvalidRequestError: not an assignment, or no daemon has the setting.
    """
    found: dict[str, dict[str, str]] = {role: {} for role in ROLES}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise InvalidRequestError(f"--set {assignment}: write NAME=VALUE")
        first, _, rest = name.partition(".")
        wanted, setting = ((first,), rest) if first in ROLES else (ROLES, name)
        owners = [role for role in wanted if known_setting(settings_class(role), tuple(setting.split(".")))]
        if not owners:
            raise InvalidRequestError(f"--set {name}: no daemon has this setting{_suggestion(wanted, setting)}")
        for role in owners:
            found[role][setting] = value
            if setting == "resp.port" and role == "reader" and first != role:
                found[role][setting] = _next_port(value)
    if "resp.enabled" in found["writer"]:
        found["reader"].setdefault("resp.port", str(_RESP_PORT + 1))
    return {role: _without_secrets(role, given) for role, given in found.items()}


def _without_secrets(role: str, given: Mapping[str, str]) -> RoleSettings:
    found = RoleSettings([], {})
    for name, value in given.items():
        names = tuple(name.split("."))
        if _holds_secret(settings_class(role), names):
            several = command_line_value(value)
            text = ",".join(map(str, several)) if isinstance(several, list) else value
            found.variables["__".join((f"{PREFIX}{role}", *names)).upper()] = text
        else:
            found.arguments.append(f"--set={name}={value}")
    return found


def _holds_secret(model: type[BaseModel], names: Names) -> bool:
    for name in names:
        field = model.model_fields.get(name)
        section = None if field is None else section_of(field.annotation)
        if section is None:
            return name == "endpoint" or (field is not None and _has_secret_type(field.annotation))
        model = section
    return False


def _has_secret_type(annotation: object) -> bool:
    return annotation is SecretStr or any(_has_secret_type(each) for each in get_args(annotation))


def _next_port(port: str) -> str:
    return str(int(port) + 1) if port.isdecimal() and int(port) else port


def _suggestion(roles: Sequence[str], setting: str) -> str:
    known = {".".join(names) for role in roles for names in all_settings(settings_class(role))}
    return suggest(setting, sorted(known))
