"""What every daemon's settings class is built on, and how settings are loaded.

Precedence: command line, environment, secret files, configuration files, defaults (docs/operations.md 13).  All
mistakes are reported at once, each with the variable, the file or the option that it stands in.
"""

import argparse
import hashlib
import os
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from shale.engine.settings_values import is_too_large
from shale.errors import InvalidRequestError
from shale.format.transform import BlockTransformer
from shale.merge_operators import operator_of
from shale.service import layers
from shale.service.layers import Layer, Names
from shale.service.sections import (
    AdminSection,
    DatabaseSection,
    EncryptionSection,
    LogSection,
    MetricsSection,
    ReadySection,
    ShutdownSection,
    StoreSection,
)

SECRETS_DIR = Path("/run/secrets")
_WEAKEST_FIRST = ("files", "secrets", "environment")


def require_possible(options: Callable[[], object], merge_operator: str | None) -> None:
    """Return if the engine takes the options of a daemon and knows the merge operator, for validators of settings.

    Raises:
        ValueError: it does not; says why.
    """
    try:
        options()
    except InvalidRequestError as error:
        raise ValueError(str(error)) from error
    try:
        operator_of(merge_operator)
    except InvalidRequestError as error:
        raise ValueError(f"merge_operator: {error}") from error


class DaemonSettings(BaseSettings):
    """The sections that every daemon has.  A daemon adds its own and says its role."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True)

    ROLE: ClassVar[str]
    FLAGS: ClassVar[tuple[str, ...]] = ()
    """Boolean settings that have an option of their own, such as ``take_over``: ``--take-over``."""

    database: DatabaseSection
    store: StoreSection = StoreSection()
    encryption: EncryptionSection | None = None
    admin: AdminSection = AdminSection()
    log: LogSection = LogSection()
    shutdown: ShutdownSection = ShutdownSection()
    ready: ReadySection = ReadySection()
    metrics: MetricsSection = MetricsSection()
    cpu_threads: int = Field(default=2, ge=1, le=256, description="Threads for work on blocks of rows.")
    config: tuple[Path, ...] = Field(default=(), description="Configuration files; later ones win.")

    def block_transformer(self) -> BlockTransformer | None:
        """What sections of SSTs and WAL files go through.

        Raises:
            InvalidRequestError: the key file cannot be read or understood.
        """
        return None if self.encryption is None else self.encryption.transformer()

    def needs_conditional_update(self) -> bool:
        """Whether the store must prove conditional updates; a daemon that does without boundary files says no."""
        return True

    def writes_to_store(self) -> bool:
        """Whether the store is proven at start; a daemon that never writes may have no right to."""
        return True

    def uses_wal(self) -> bool:
        """Whether the WAL is read or written, so that a store of its own is opened."""
        return True

    def writes_to_wal(self) -> bool:
        """Whether a store of its own for the WAL is proven at start; only writers create files there."""
        return False

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - replaced by sources that know our names
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The sources, strongest first."""
        return (init_settings, *(_LayerSource(settings_cls, name) for name in ("environment", "secrets", "files")))


S = TypeVar("S", bound=DaemonSettings)


class _LayerSource(PydanticBaseSettingsSource):
    """One layer, as pydantic-settings merges it."""

    def __init__(self, settings_cls: type[BaseSettings], name: str) -> None:
        super().__init__(settings_cls)
        self._name = name

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002
        """Unused: the layer comes as a whole."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """The values of the layer."""
        assert issubclass(self.settings_cls, DaemonSettings)
        return _layer(self._name, self.settings_cls, self.current_state.get("config")).values


def _layer(name: str, settings_cls: type[DaemonSettings], config: object) -> Layer:
    role = settings_cls.ROLE
    match name:
        case "environment":
            return layers.read_environment(role, settings_cls, os.environ)[0]
        case "secrets":
            directory = Path(os.environ.get("SHALE_SECRETS_DIR", SECRETS_DIR))
            return layers.read_secrets(role, settings_cls, directory)
        case _:
            return layers.read_files(role, settings_cls, layers.config_files(config))


class SettingsError(InvalidRequestError):
    """Settings that cannot be used; one line per mistake."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """Settings, with what is said about them at start."""

    settings: S
    unknown_env: tuple[str, ...]
    sha256_8: str


def load(settings_cls: type[S], argv: Sequence[str]) -> Loaded[S]:
    """Read the settings of a daemon from its command line, the environment and the files.

    Raises:
        SettingsError: with every mistake.
        SystemExit: the command line asks for help, or is wrong (2).
    """
    command_line = read_command_line(settings_cls, argv)
    try:
        settings = settings_cls(**command_line.values)
    except ValidationError as error:
        raise SettingsError(list(_problems(error, settings_cls, command_line))) from error
    except InvalidRequestError as error:
        raise SettingsError([str(error)]) from error
    too_large = [f"{'.'.join(names)}: the number is too large" for names in _too_large(settings)]
    if too_large:
        raise SettingsError(too_large)
    unknown = layers.read_environment(settings_cls.ROLE, settings_cls, os.environ)[1]
    text = settings.model_dump_json(exclude={"config"})
    return Loaded(settings, tuple(unknown), hashlib.sha256(text.encode()).hexdigest()[:8])


def origins(settings_cls: type[DaemonSettings], argv: Sequence[str]) -> dict[Names, str]:
    """Where each setting that is not a default comes from, in the words of error messages; the strongest source wins.

    Raises:
        InvalidRequestError: a file cannot be read.
    """
    command_line = read_command_line(settings_cls, argv)
    weakest_first = [_layer(name, settings_cls, command_line.values.get("config")) for name in _WEAKEST_FIRST]
    found: dict[Names, str] = {}
    for layer in (*weakest_first, command_line):
        found.update(layer.origins)
    return found


def _too_large(model: BaseModel, above: Names = ()) -> Iterator[Names]:
    """The settings whose whole number is beyond 64 bits, which nothing behind them could take."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _too_large(value, (*above, name))
        elif isinstance(value, int) and is_too_large(value):
            yield (*above, name)


def read_command_line(settings_cls: type[DaemonSettings], argv: Sequence[str]) -> Layer:
    """The options every daemon understands; ``--set`` reaches every setting by its dotted name."""
    parser = argparse.ArgumentParser(
        prog=f"shale {settings_cls.ROLE}",
        description=settings_cls.__doc__,
        epilog="Every setting can be given as SHALE_… variable, in a file, or as --set section.name=value; "
        f"shale config show {settings_cls.ROLE} prints them all.  "
        f"Example: shale {settings_cls.ROLE} -u s3://bucket/db --config shale.toml --admin-port 9465",
    )
    parser.add_argument("--url", "-u", help="the database, for example s3://bucket/path or file:///data/orders")
    parser.add_argument("--store", help="the store alone, together with --path")
    parser.add_argument("--path", "-p", help="the database's path in the store")
    parser.add_argument("--wal-store", help="the store of the WAL, if it has one of its own")
    parser.add_argument("--config", action="append", help="a configuration file (TOML or YAML); repeatable")
    parser.add_argument("--log-level", help="debug, info, warning, error or critical")
    parser.add_argument("--admin-port", help="port of metrics and health; 0 takes a free one")
    if "http" in settings_cls.model_fields:
        parser.add_argument("--port", help="port of the network interface; 0 takes a free one")
    for flag in settings_cls.FLAGS:
        about = settings_cls.model_fields[flag].description
        parser.add_argument(f"--{flag.replace('_', '-')}", action=argparse.BooleanOptionalAction, help=about)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="any setting, repeatable")
    given = vars(parser.parse_args(argv))
    layer = Layer()
    places: dict[str, Names] = {
        "url": ("database", "url"),
        "store": ("database", "store"),
        "path": ("database", "path"),
        "wal_store": ("database", "wal_store"),
        "config": ("config",),
        "log_level": ("log", "level"),
        "admin_port": ("admin", "port"),
        "port": ("http", "port"),
        **{flag: (flag,) for flag in settings_cls.FLAGS},
    }
    for option, names in places.items():
        if given.get(option) is not None:
            layer.put(names, given[option], f"option --{option.replace('_', '-')}")
    for assignment in given["set"]:
        name, equals, value = assignment.partition("=")
        if not equals:
            parser.error(f"--set {assignment}: write NAME=VALUE")
        layer.put(tuple(name.split(".")), _command_line_value(value), f"option --set {name}")
    return layer


def _command_line_value(text: str) -> Any:
    """A list or table is written as in a file; everything else is text, which the setting's type reads."""
    if not text.startswith(("[", "{")):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:  # also a number that is too long for Python, which the setting's type then refuses
        return text


def _problems(error: ValidationError, settings_cls: type[DaemonSettings], command_line: Layer) -> Iterator[str]:
    all_layers = [command_line]
    all_layers += [
        _layer(name, settings_cls, command_line.values.get("config")) for name in ("environment", "secrets", "files")
    ]
    for each in error.errors(include_url=False, include_context=False, include_input=False):
        names = tuple(str(part) for part in each["loc"])
        message = str(each["msg"]).removeprefix("Value error, ")
        if each["type"] == "extra_forbidden":
            message = "no such setting" + layers.suggest(names[-1], _siblings(settings_cls, names))
        elif each["type"] == "missing":
            message = "is required"
            if names == ("database",):
                message = "no database was named: give --url, SHALE_URL or [database] url"
        yield f"{'.'.join(names)}: {message}{_place(names, all_layers)}" if names else message


def _place(names: Names, all_layers: Sequence[Layer]) -> str:
    for layer in all_layers:
        for leaf, origin in layer.origins.items():
            if leaf[: len(names)] == names or names[: len(leaf)] == leaf:
                return f" ({origin})"
    return ""


def _siblings(model: type[BaseModel], names: Names) -> list[str]:
    for name in names[:-1]:
        found = model.model_fields.get(name)
        section = layers.section_of(found.annotation) if found is not None else None
        if section is None:
            return []
        model = section
    return list(model.model_fields)
