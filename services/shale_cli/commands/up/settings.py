"""``shale up --set``: settings of the daemons on the command line."""

from collections.abc import Sequence

from shale.core.suggestions import suggest
from shale.errors import InvalidRequestError
from shale.service.config.config_sources import all_settings, known_setting
from shale.service.config.secret_settings import refuse_secret
from shale_cli.framework.daemons import settings_class

ROLES = ("writer", "compactor", "gc", "reader")
_RESP_PORT = 6379


def daemon_settings(assignments: Sequence[str]) -> dict[str, list[str]]:
    """Return the command line of each daemon for these assignments.

    ``name=value`` goes to all daemons that have the setting, ``writer.name=value`` to the writer.  Writer and reader
    listen on the same host, so the reader's Redis port is the one after the writer's.

    Raises:
        InvalidRequestError: not an assignment, no daemon has the setting, or it is a secret.
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
            refuse_secret(settings_class(role), setting, value)
            found[role][setting] = value
            if setting == "resp.port" and role == "reader" and first != role:
                found[role][setting] = _next_port(value)
    if "resp.enabled" in found["writer"]:
        found["reader"].setdefault("resp.port", str(_RESP_PORT + 1))
    return {role: [f"--set={name}={value}" for name, value in given.items()] for role, given in found.items()}


def _next_port(port: str) -> str:
    return str(int(port) + 1) if port.isdecimal() and int(port) else port


def _suggestion(roles: Sequence[str], setting: str) -> str:
    known = {".".join(names) for role in roles for names in all_settings(settings_class(role))}
    return suggest(setting, sorted(known))
