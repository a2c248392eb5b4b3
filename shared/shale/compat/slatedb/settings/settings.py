"""``Settings``: SlateDB's options as a mutable object, from files, the environment and JSON."""

import copy
import json
import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from shale.compat.slatedb.errors import Invalid, invalid
from shale.compat.slatedb.handles import Handle
from shale.compat.slatedb.settings.schema import DEFAULTS, check_settings
from shale.core.bounded_yaml import read_yaml

_LOAD_PREFIX = "SLATEDB_"
_LOAD_FILES = ("SlateDb.json", "SlateDb.toml", "SlateDb.yaml", "SlateDb.yml")


class Settings(Handle):
    """All settings of a database.  Made by ``default`` and the ``from_…`` methods."""

    _values: dict[str, Any]

    @classmethod
    def default(cls) -> "Settings":
        """Return SlateDB's defaults."""
        return cls._checked(DEFAULTS)

    @classmethod
    def from_file(cls, path: str) -> "Settings":
        """Return the defaults, overridden by a TOML, JSON or YAML file; a missing file overrides nothing.

        Raises:
            Error: another kind of file, or one that cannot be parsed.
        """
        return cls._configured([DEFAULTS, _read_file(Path(path))])

    @classmethod
    def from_json_string(cls, json: str) -> "Settings":
        """Parse a JSON object, which must hold all settings without a default.

        Raises:
            Error: not such an object.
        """
        try:
            return cls._checked(_loads(json))
        except ValueError as error:
            raise invalid(str(error)) from error

    @classmethod
    def from_env(cls, prefix: str) -> "Settings":
        """Return the defaults, overridden by variables ``<prefix>FLUSH_INTERVAL`` and so on; dots separate table names.

        Raises:
            Error: a value that cannot be parsed.
        """
        return cls.from_env_with_default(prefix, cls.default())

    @classmethod
    def from_env_with_default(cls, prefix: str, default_settings: "Settings") -> "Settings":
        """Return other defaults, overridden by variables; see ``from_env``."""
        return cls._configured([default_settings._values, _read_variables(prefix, os.environ)])

    @classmethod
    def load(cls) -> "Settings":
        """Load the defaults, overridden by files of the working directory and then by variables.

        The files are ``SlateDb.json``, ``.toml``, ``.yaml`` and ``.yml``; the variables begin with ``SLATEDB_``.

        Raises:
            Error: one of them cannot be parsed.
        """
        files = [_read_file(Path(name)) for name in _LOAD_FILES]
        return cls._configured([DEFAULTS, *files, _read_variables(_LOAD_PREFIX, os.environ)])

    def set(self, key: str, value_json: str) -> None:
        """Change one field.

        Args:
            key: its name, with dots after the names of tables, which are made if they do not exist.
            value_json: as JSON.

        Raises:
            Error: an invalid key or value; nothing has changed.
        """
        try:
            value = _loads(value_json)
        except ValueError as error:
            raise invalid(f"value_json is not valid JSON: {error}") from error
        values = copy.deepcopy(self._values)
        _put(values, key, value)
        try:
            self._values = check_settings(values)
        except ValueError as error:
            raise invalid(f"settings update produced invalid settings: {error}") from error

    def to_json_string(self) -> str:
        """Return all settings as one JSON object."""
        values = self._values
        cache = values["object_store_cache_options"]
        if cache["scan_interval"] is None:  # the one null that SlateDB leaves out
            values = {**values, "object_store_cache_options": {**cache}}
            del values["object_store_cache_options"]["scan_interval"]
        return json.dumps(values, separators=(",", ":"), ensure_ascii=False)

    def _copy(self) -> "Settings":
        return self._checked(self._values)

    @classmethod
    def _checked(cls, values: Any) -> "Settings":
        settings = cls._blank()
        settings._values = check_settings(values)
        return settings

    @classmethod
    def _configured(cls, layers: list[Mapping[str, Any]]) -> "Settings":
        values: dict[str, Any] = {}
        for layer in layers:
            values = _merged(values, layer)
        try:
            return cls._checked(values)
        except ValueError as error:
            raise Invalid(f"Invalid error: invalid configuration format ({error})") from error


def _loads(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _put(values: dict[str, Any], key: str, value: Any) -> None:
    if not key:
        raise invalid("key invalid: key cannot be empty")
    *tables, last = key.split(".")
    if not all((*tables, last)):
        raise invalid("key invalid: key has an empty path segment")
    for name in tables:
        if values.get(name) is None:
            values[name] = {}
        if not isinstance(values[name], dict):
            raise invalid(f"key invalid: segment '{name}' is not an object")
        values = values[name]
    values[last] = value


def _read_file(path: Path) -> Mapping[str, Any]:
    readers: dict[str, Callable[[str], Any]] = {
        ".json": _loads,
        ".toml": tomllib.loads,
        ".yaml": read_yaml,
        ".yml": read_yaml,
    }
    read = readers.get(path.suffix)
    if read is None:
        raise Invalid(f"Invalid error: unknown configuration file format. path=`{path}`")
    try:
        content = read(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise Invalid(f"Invalid error: invalid configuration format ({error} in {path})") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise Invalid(f"Invalid error: invalid configuration format (no table of settings in {path})")
    return content


def _read_variables(prefix: str, environ: Mapping[str, str]) -> Mapping[str, Any]:
    """Return variables as a table; values are parsed as TOML where they can be, and are text everywhere else."""
    values: dict[str, Any] = {}
    for name in sorted(environ):
        if name.upper().startswith(prefix.upper()) and len(name) > len(prefix):
            key = name[len(prefix) :].lower()
            if all(key.split(".")):
                _put(values, key, _variable(environ[name]))
    return values


def _variable(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text.strip()}")["value"]
    except (ValueError, RecursionError):  # also of a number that is too long for Python
        return text


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        merged[name] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
