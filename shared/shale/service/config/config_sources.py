"""Sources of settings: environment, secret files and configuration files, each read into one layer.

A layer is a tree of raw values with the origin of every leaf, so that an error can name the variable or the file.
Names are shared by all daemons: ``SHALE_LOG__LEVEL`` and ``[log]`` apply to all of them, and
``SHALE_WRITER__LOG__LEVEL`` and ``[writer.log]`` override them for the writer.  Keys of SlateDB's own settings file
are top-level keys; daemons that do not use them ignore them.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from shale.core.lazy_dataclass import dataclass
from shale.core.suggestions import suggest
from shale.errors import InvalidRequestError
from shale.service.config.source_names import DEFAULT_FILE, PREFIX, SHORT_NAMES, SLATEDB_PREFIX

ROLES = ("writer", "compactor", "worker", "gc", "reader")

_QUOTED = re.compile(r"'([^']*)'")
_TOO_LONG = re.compile(r"[0-9_]{4000,}")
CONFIG_FILES_VARIABLE = ("config",)
"""``SHALE_CONFIG`` is a colon-separated list of files; ``config_files`` reads it."""

NOT_SETTINGS = (
    "config",
    "secrets_dir",
    "admin_token",
    "ca_file",
    "client_cert_file",
    "client_key_file",
    "endpoint",
    "token_file",
    "revision",
    "kernels",
    "sim_",
    "bench_",
    "demo_",
    "test_",
)
SLATEDB_KEYS = frozenset(
    {
        "flush_interval", "wal_enabled", "manifest_poll_interval", "manifest_update_timeout", "min_filter_keys",
        "l0_sst_size_bytes", "max_wal_flushes_before_l0_flush", "l0_max_ssts", "l0_max_ssts_per_key",
        "l0_flush_parallelism", "max_unflushed_bytes", "compactor_options", "compression_codec",
        "object_store_cache_options", "garbage_collector_options", "metric_level", "default_ttl_millis",
        "object_store_max_retries", "block_format", "filter_bits_per_key",
    }
)  # fmt: skip
SHARED_SECTIONS = frozenset(
    {
        "database", "store", "encryption", "admin", "audit", "auth", "log", "shutdown", "ready", "metrics", "http",
        "resp", "spark", "filters", "disk_cache", "merge_operator", "segment_extractor", "tls", "tokens", "wal",
    }
)  # fmt: skip
"""Sections that several daemons share; a daemon without such a section ignores it."""

Names = tuple[str, ...]

_OTHER_SECTIONS = SLATEDB_KEYS | SHARED_SECTIONS | {"backup", "enforce_visible_range", "quotas", "standby"}
"""Names of these sections are of another daemon if this one has no such section."""
_OTHER_SETTINGS = frozenset({("http", "max_idempotency_keys"), ("ready", "max_lag"), ("shutdown", "flush")})
"""Settings that only some of the daemons with their section have."""


@dataclass(slots=True)
class ConfigLayer:
    """Raw values as a tree, and the origin of every leaf."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[Names, str] = field(default_factory=dict)

    def put(self, names: Names, value: Any, origin: str) -> None:
        """Set one leaf; a tree is set leaf by leaf, so that it merges with existing values.

        Raises:
            InvalidRequestError: a text or a name is not UTF-8, so no log, file or request can hold it.  Python keeps
                such bytes of the environment and of the command line as halves of surrogate pairs; files can name the
                halves.
        """
        if isinstance(value, Mapping):
            for name, below in value.items():
                self.put((*names, str(name)), below, origin)
            return
        if not (_is_utf8(".".join(names)) and _is_utf8(value)):
            raise InvalidRequestError(f"{ascii('.'.join(names))[1:-1]}: the text is not UTF-8 ({origin})")
        tree = self.values
        for name in names[:-1]:
            below = tree.get(name)
            if not isinstance(below, dict):
                below = tree[name] = {}
            tree = below
        tree[names[-1]] = value
        self.origins[names] = origin


def _is_utf8(value: object) -> bool:
    """Return whether all texts of a value are UTF-8, also those of tables in a list."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
    elif isinstance(value, Mapping):
        return all(map(_is_utf8, value)) and all(map(_is_utf8, value.values()))
    elif isinstance(value, list):
        return all(map(_is_utf8, value))
    return True


def read_environment(role: str, model: type[BaseModel], environ: Mapping[str, str]) -> tuple[ConfigLayer, list[str]]:
    """Read ``SLATEDB_*``, then ``SHALE_*``, then the role's own variables.

    Returns:
        The layer, and a message for each variable that no daemon knows.
    """
    layer, unknown = ConfigLayer(), []
    own = f"{PREFIX}{role.upper()}__"
    others = tuple(f"{PREFIX}{other.upper()}__" for other in ROLES if other != role)
    for prefix in (SLATEDB_PREFIX, PREFIX, own):
        for variable in sorted(environ):
            if not variable.startswith(prefix) or (prefix == PREFIX and variable.startswith((own, *others))):
                continue
            names = _names(variable.removeprefix(prefix))
            if known_setting(model, names) and names != CONFIG_FILES_VARIABLE:
                layer.put(names, environ[variable], f"environment {variable}")
            elif prefix == own or (prefix == PREFIX and not _belongs_to_other_daemon(names, model)):
                unknown.append(f"{variable}{_suggestion(names, model)}")
    return layer, unknown


def read_secrets(role: str, model: type[BaseModel], directory: Path) -> tuple[ConfigLayer, list[str]]:
    """Read files named like variables without the prefix, for example ``writer__http__bearer_token``.

    Returns:
        The layer, and a message for each file that is named like a setting and that no daemon knows.

    Raises:
        InvalidRequestError: a file cannot be read; the message names the file and none of its contents.
    """
    layer, unknown = ConfigLayer(), list[str]()
    if not directory.is_dir():
        return layer, unknown
    others = tuple(f"{other}__" for other in ROLES if other != role)
    for shared in (True, False):
        for file in sorted(directory.iterdir()):
            name = file.name.lower().removeprefix(PREFIX.lower())
            mine = name.startswith(f"{role}__")
            names = _names(name.removeprefix(f"{role}__"))
            if mine == shared or name.startswith((".", *others)) or not file.is_file():
                continue
            if known_setting(model, names):
                layer.put(names, _read_text(file, "secret").strip(), f"secret file {file}")
            elif "__" in name and (mine or not _belongs_to_other_daemon(names, model)):
                unknown.append(f"secret file {file}{_suggestion(names, model)}")
    return layer, unknown


def read_files(role: str, model: type[BaseModel], files: Sequence[Path]) -> ConfigLayer:
    """Read TOML or YAML files; later files override earlier ones.

    Raises:
        InvalidRequestError: a file is missing or malformed; names the file.
    """
    layer = ConfigLayer()
    for file in files:
        tree = _read_file(file)
        own = tree.pop(role, {})
        for name in (*ROLES, *SLATEDB_KEYS, *SHARED_SECTIONS):
            if name not in model.model_fields:
                tree.pop(name, None)
        layer.put((), tree, f"file {file}")
        layer.put((), own, f"file {file}, section {role}")
    return layer


def _read_text(file: Path, what: str) -> str:
    try:
        return file.read_text()
    except OSError as error:
        raise InvalidRequestError(f"{file}: cannot read the {what}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        message = f"{file}: the {what} is not text: {error.reason} at position {error.start}"
        raise InvalidRequestError(message) from error


def _read_file(file: Path) -> dict[str, Any]:
    text = _read_text(file, "configuration")
    try:
        tree = _read_yaml(file, text) if file.suffix in (".yaml", ".yml") else _read_toml(file, text)
    except RecursionError:
        raise InvalidRequestError(f"{file}: the configuration is nested too deeply") from None
    if not isinstance(tree, dict):
        raise InvalidRequestError(f"{file}: the configuration is not a table of names and values")
    return tree


def _read_toml(file: Path, text: str) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequestError(f"{file}: {error}") from error
    except ValueError as error:
        raise _too_long(file, text, error) from None


def _read_yaml(file: Path, text: str) -> Any:
    import yaml

    from shale.core.bounded_yaml import read_yaml

    try:
        return read_yaml(text) or {}
    except yaml.YAMLError as error:
        # The text of the error quotes the line, which may hold a secret.
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
        raise InvalidRequestError(f"{file}: invalid YAML{place}: {_problem(error)}") from None
    except ValueError as error:
        raise _too_long(file, text, error) from None


def _problem(error: Exception) -> str:
    """Return what is wrong with YAML, without text of the file."""
    return _without_quotes(str(getattr(error, "problem", None) or type(error).__name__))


def _without_quotes(text: str) -> str:
    """Leave out what a message quotes, unless it is one character or the name of a token, such as ``<stream end>``."""
    return _QUOTED.sub(lambda found: found[0] if len(found[1]) < 2 or found[1][0] in "<\\" else "…", text)


def _too_long(file: Path, text: str, error: ValueError) -> InvalidRequestError:
    """Return an error with the line of a number that is too long for Python, whose own error has no line."""
    for number, line in enumerate(text.splitlines(), 1):
        found = _TOO_LONG.search(line)
        if found is not None:
            return InvalidRequestError(
                f"{file}: line {number}, {line[: found.start() + 8].strip()}…: a number too long"
            )
    return InvalidRequestError(f"{file}: {_without_quotes(str(error))}")


def known_setting(model: type[BaseModel], names: Names) -> bool:
    """Return whether these names lead to a value of the model."""
    for depth, name in enumerate(names):
        found = model.model_fields.get(name)
        if found is None:
            return False
        section = section_of(found.annotation)
        if section is None:
            return depth == len(names) - 1 or _is_table(found.annotation)
        model = section
    return False


def section_of(annotation: Any) -> type[BaseModel] | None:
    """Return the section class of a field, or ``None``."""
    candidates = (annotation, *getattr(annotation, "__args__", ()))
    return next((each for each in candidates if isinstance(each, type) and issubclass(each, BaseModel)), None)


def all_settings(model: type[BaseModel], above: Names = ()) -> Iterator[Names]:
    """Yield the names of every value of the model."""
    for name, found in model.model_fields.items():
        section = section_of(found.annotation)
        if section is None:
            yield (*above, name)
        else:
            yield from all_settings(section, (*above, name))


def _is_table(annotation: Any) -> bool:
    candidates = (annotation, *getattr(annotation, "__args__", ()))
    return any(each is dict or getattr(each, "__origin__", None) is dict for each in candidates)


def _names(text: str) -> Names:
    names = tuple(text.lower().replace(".", "__").split("__"))
    return SHORT_NAMES.get(names[0], names) if len(names) == 1 else names


def _belongs_to_other_daemon(names: Names, model: type[BaseModel]) -> bool:
    if names[0] in model.model_fields:
        return names in _OTHER_SETTINGS or names == CONFIG_FILES_VARIABLE
    return names[0] in _OTHER_SECTIONS or names[0].startswith(NOT_SETTINGS)


def _suggestion(names: Names, model: type[BaseModel]) -> str:
    return suggest("__".join(names), ["__".join(each) for each in all_settings(model)])


def command_line_value(text: str) -> Any:
    """Parse a list or table as TOML; leave everything else as text for the type of the setting."""
    if not text.startswith(("[", "{")):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # also for a number that is too long; the type of the setting rejects it
        return text


def config_files(given: object, environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Return the files to read: from the command line, else ``SHALE_CONFIG``, else the default file if it exists."""
    if isinstance(given, list | tuple) and given:
        return tuple(Path(str(each)) for each in given)
    named = (environ if environ is not None else os.environ).get(f"{PREFIX}CONFIG", "")
    if named:
        return tuple(Path(each) for each in named.split(os.pathsep) if each)
    return (DEFAULT_FILE,) if DEFAULT_FILE.is_file() else ()
