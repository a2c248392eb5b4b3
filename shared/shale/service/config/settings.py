"""The base class of all daemon settings, and how settings are loaded.

Precedence: command line, environment, secret files, configuration files, defaults (docs/how-to/configure.md).  All
errors are reported at once, each with its variable, file or option.
"""

import argparse
import hashlib
import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from shale.core.lazy_dataclass import dataclass
from shale.core.suggestions import suggest
from shale.errors import InvalidRequestError
from shale.format.blocks.transform import BlockTransformer
from shale.protocol.options import MissingBoundary
from shale.service.access import Role, TokenRole
from shale.service.config import config_sources
from shale.service.config.access.auth_section import AuthSection
from shale.service.config.access.exposed_ports import ListeningPort, exposed_ports, is_loopback
from shale.service.config.access.tls_section import TlsSection
from shale.service.config.access.tokens import TokensSection
from shale.service.config.admin_section import AdminSection
from shale.service.config.audit_section import AuditSection
from shale.service.config.config_sources import ConfigLayer, Names
from shale.service.config.manifest_section import ManifestSection
from shale.service.config.secret_settings import refuse_secret
from shale.service.config.section import too_large_integers
from shale.service.config.sections import (
    DatabaseSection,
    EncryptionSection,
    LogSection,
    MetricsSection,
    PositiveSeconds,
    ReadySection,
    StoreSection,
)
from shale.service.config.settings_error import SettingsError
from shale.service.config.shutdown_section import ShutdownSection
from shale.service.config.source_names import SECRETS_DIR
from shale.service.config.tracing_section import TracingSection
from shale.service.memory.section import MemoryPlan, MemorySection, MemoryShares, plan_memory

_WEAKEST_FIRST = ("files", "secrets", "environment")


class DaemonSettings(BaseSettings):
    """The settings of every daemon.  A subclass adds its own settings and its ``ROLE``."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True)

    ROLE: ClassVar[str]
    FLAGS: ClassVar[tuple[str, ...]] = ()
    """Boolean settings with a command-line option of their own, such as ``take_over``: ``--take-over``.

    Of a section, ``standby.enabled`` is ``--standby``.
    """
    RELOADED: ClassVar[tuple[str, ...]] = (
        *("admin.bearer_token", "admin.requests_per_second", "admin.require_token", "log.level"),
        *("metrics.sample_rate", "tokens", "tracing.sample_ratio"),
    )
    """Settings and sections that SIGHUP changes at once; the others need a restart."""

    database: DatabaseSection
    store: StoreSection = StoreSection()
    encryption: EncryptionSection | None = None
    manifest: ManifestSection = ManifestSection()
    admin: AdminSection = AdminSection()
    auth: AuthSection = AuthSection()
    tls: TlsSection = TlsSection()
    tokens: TokensSection = TokensSection()
    audit: AuditSection = AuditSection()
    log: LogSection = LogSection()
    shutdown: ShutdownSection = ShutdownSection()
    ready: ReadySection = ReadySection()
    metrics: MetricsSection = MetricsSection()
    tracing: TracingSection = TracingSection()
    memory: MemorySection = MemorySection()
    cpu_threads: int = Field(default=2, ge=1, le=256, description="Threads for work on blocks of rows.")
    config: tuple[Path, ...] = Field(default=(), description="Configuration files; later ones win.")

    def block_transformer(self) -> BlockTransformer | None:
        """Return the transformer that encrypts blocks; ``None`` without encryption.

        Raises:
            InvalidRequestError: the key file cannot be read or parsed.
        """
        return None if self.encryption is None else self.encryption.transformer()

    def admin_tokens(self) -> list[TokenRole]:
        """Return the tokens of the admin port."""
        own = self.admin.bearer_token
        return [*self.tokens.roles(), *([] if own is None else [(own, Role.ADMIN)])]

    def memory_shares(self) -> MemoryShares:
        """Return the settings that bound the parts of the memory of this process."""
        return ()

    def requires_admin_token(self) -> bool:
        """Whether the admin port is closed until a token is set for it.

        A token of another port shows that not all clients are trusted, so it closes the admin port, too.
        """
        return self.admin.require_token

    @property
    def admin_listen_port(self) -> int:
        """The admin port to open; 0: any free one."""
        return self.admin.port

    def listening_ports(self) -> list[ListeningPort]:
        """Return the ports that the daemon opens.  A closed admin port serves only health and metrics."""
        is_protected = bool(self.admin_tokens()) or self.requires_admin_token() or self.tls.client_ca_file is not None
        remedy = "tokens.admin (or admin.bearer_token, or admin.require_token = true)"
        return [ListeningPort("admin", self.admin.host, is_protected, remedy)]

    def is_local(self, host: str) -> bool:
        """Return whether requests to a port must name this machine: it listens on a loopback address in clear text.

        With TLS the certificate tells a browser whose port it is.
        """
        return is_loopback(host) and not self.auth.insecure and self.tls.scheme == "http"

    def needs_conditional_update(self) -> bool:
        """Whether the store must support conditional updates; not needed without boundary files."""
        return True

    def writes_to_store(self) -> bool:
        """Whether the preflight check may write to the store; a read-only daemon may lack the permission."""
        return True

    def requires_writes(self) -> bool:
        """Whether the daemon is not ready while its writes to the store fail."""
        return True

    def preflight_path(self) -> str:
        """Return the path in the store below which the preflight check writes: credentials may be limited to it."""
        return self.database.location().path

    def uses_wal(self) -> bool:
        """Whether the daemon reads or writes the WAL, and so opens a separate WAL store."""
        return True

    def writes_to_wal(self) -> bool:
        """Whether the preflight check may write to a separate WAL store; only writers create files there."""
        return False

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - replaced by the layers of ``config_sources``
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources, highest precedence first."""
        return (init_settings, *(_LayerSource(settings_cls, name) for name in ("environment", "secrets", "files")))


ProbeMaxStaleness = Annotated[
    PositiveSeconds,
    Field(description="How long a manifest counts as the latest one without a new check; must be below every min_age."),
]


class BoundarySettings(DaemonSettings):
    """The settings of a daemon that commits versions: what protects the boundary files."""

    missing_boundary: MissingBoundary = Field(
        default=MissingBoundary.PANIC,
        description="A missing boundary file was deleted, which is fatal (panic), or never existed (zero).",
    )
    boundary_files_off_acknowledged: bool = Field(
        default=False, description="Required to disable boundary files, because a stale process may then commit."
    )

    @abstractmethod
    def uses_boundary_files(self) -> bool:
        """Whether boundary files are enabled."""

    @model_validator(mode="after")
    def _boundary_files_off_is_acknowledged(self) -> Self:
        if not self.uses_boundary_files() and not self.boundary_files_off_acknowledged:
            raise ValueError("boundary_files_enabled = false needs boundary_files_off_acknowledged = true")
        return self


class BoundaryFilesSettings(BoundarySettings):
    """``BoundarySettings`` with the switch itself, for daemons that have it at the top level."""

    boundary_files_enabled: bool = Field(
        default=True, description="Disable only for stores without conditional updates."
    )

    def uses_boundary_files(self) -> bool:
        """Whether boundary files are enabled."""
        return self.boundary_files_enabled


S = TypeVar("S", bound=DaemonSettings)


class _LayerSource(PydanticBaseSettingsSource):
    """One configuration layer as a source of pydantic-settings."""

    def __init__(self, settings_cls: type[BaseSettings], name: str) -> None:
        super().__init__(settings_cls)
        self._name = name

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002
        """Unused: ``__call__`` returns the whole layer."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return the values of the layer."""
        assert issubclass(self.settings_cls, DaemonSettings)
        return _layer(self._name, self.settings_cls, self.current_state.get("config")).values


def _layer(name: str, settings_cls: type[DaemonSettings], config: object) -> ConfigLayer:
    role = settings_cls.ROLE
    match name:
        case "environment":
            return config_sources.read_environment(role, settings_cls, os.environ)[0]
        case "secrets":
            return config_sources.read_secrets(role, settings_cls, _secrets_directory())[0]
        case _:
            return config_sources.read_files(role, settings_cls, config_sources.config_files(config))


def _secrets_directory() -> Path:
    return Path(os.environ.get("SHALE_SECRETS_DIR", SECRETS_DIR))


def _unknown_names(settings_cls: type[DaemonSettings]) -> tuple[str, ...]:
    """Return the variables and secret files that no daemon knows."""
    role = settings_cls.ROLE
    variables = config_sources.read_environment(role, settings_cls, os.environ)[1]
    return (*variables, *config_sources.read_secrets(role, settings_cls, _secrets_directory())[1])


@dataclass(frozen=True, slots=True)
class LoadedSettings(Generic[S]):
    """The loaded settings, unknown variables and secret files, a hash for the log, and the memory of the process."""

    settings: S
    unknown_env: tuple[str, ...]
    sha256_8: str
    memory: MemoryPlan


def load_settings(settings_cls: type[S], argv: Sequence[str]) -> LoadedSettings[S]:
    """Read the settings of a daemon from its command line, the environment and the files.

    Raises:
        SettingsError: the settings are invalid; has all errors.
        SystemExit: the command line asks for help, or is malformed (2).
    """
    try:
        command_line = read_command_line(settings_cls, argv)
    except InvalidRequestError as error:
        raise SettingsError([str(error)]) from error
    try:
        settings = settings_cls(**command_line.values)
        settings, memory = plan_memory(settings, settings.memory, settings.memory_shares())
    except ValidationError as error:
        raise SettingsError(list(_problems(error, settings_cls, command_line))) from error
    except InvalidRequestError as error:
        raise SettingsError([str(error)]) from error
    too_large = [f"{'.'.join(names)}: the number is too large" for names in too_large_integers(settings)]
    if too_large:
        raise SettingsError(too_large)
    exposed = [] if settings.auth.insecure else list(exposed_ports(settings.listening_ports()))
    if exposed:
        layers = _all_layers(settings_cls, command_line)
        raise SettingsError([f"{'.'.join(names)}: {problem}{_place(names, layers)}" for names, problem in exposed])
    digest = hashlib.sha256(settings.model_dump_json(exclude={"config"}).encode()).hexdigest()
    return LoadedSettings(settings, _unknown_names(settings_cls), digest[:8], memory)


def origins(settings_cls: type[DaemonSettings], argv: Sequence[str]) -> dict[Names, str]:
    """Return the origin of each setting that is not a default, as error messages name it.

    Raises:
        InvalidRequestError: a file cannot be read.
    """
    command_line = read_command_line(settings_cls, argv)
    weakest_first = [_layer(name, settings_cls, command_line.values.get("config")) for name in _WEAKEST_FIRST]
    found: dict[Names, str] = {}
    for layer in (*weakest_first, command_line):
        found.update(layer.origins)
    return found


def read_command_line(settings_cls: type[DaemonSettings], argv: Sequence[str]) -> ConfigLayer:
    """Parse the options of a daemon; ``--set`` sets any setting by its dotted name."""
    parser = argparse.ArgumentParser(
        prog=f"shale {settings_cls.ROLE}",
        description=settings_cls.__doc__,
        epilog="Every setting can be given as SHALE_… variable, in a file, or as --set section.name=value; "
        f"shale config show {settings_cls.ROLE} prints them all.  "
        f"Example: shale {settings_cls.ROLE} -u s3://bucket/db --config shale.toml --admin-port 9465",
    )
    parser.add_argument("--url", "-u", help="the database, for example s3://bucket/path or file:///data/orders")
    parser.add_argument("--store", help="the store without the path; needs --path")
    parser.add_argument("--path", "-p", help="the database's path in the store")
    parser.add_argument("--wal-store", help="a separate store for the WAL")
    parser.add_argument("--config", action="append", help="a configuration file (TOML or YAML); repeatable")
    parser.add_argument("--log-level", help="debug, info, warning, error or critical")
    parser.add_argument("--admin-port", help="port of metrics and health; 0: any free port")
    if "http" in settings_cls.model_fields:
        parser.add_argument("--port", help="port of the HTTP API; 0: any free port")
    for flag in settings_cls.FLAGS:
        about = _description(settings_cls, flag.split("."))
        name = flag.partition(".")[0].replace("_", "-")
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, help=about)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="any setting, repeatable")
    given = vars(parser.parse_args(argv))
    layer = ConfigLayer()
    places: dict[str, Names] = {
        "url": ("database", "url"),
        "store": ("database", "store"),
        "path": ("database", "path"),
        "wal_store": ("database", "wal_store"),
        "config": ("config",),
        "log_level": ("log", "level"),
        "admin_port": ("admin", "port"),
        "port": ("http", "port"),
        **{flag.partition(".")[0]: tuple(flag.split(".")) for flag in settings_cls.FLAGS},
    }
    for option, names in places.items():
        if given.get(option) is not None:
            layer.put(names, given[option], f"option --{option.replace('_', '-')}")
    for assignment in given["set"]:
        name, equals, value = assignment.partition("=")
        if not equals:
            parser.error(f"--set {assignment}: write NAME=VALUE")
        refuse_secret(settings_cls, name, value)
        layer.put(tuple(name.split(".")), config_sources.command_line_value(value), f"option --set {name}")
    return layer


def _description(model: type[BaseModel], names: Sequence[str]) -> str | None:
    """Return the description of a setting, which may be in a section."""
    found = model.model_fields[names[0]]
    section = found.annotation
    if len(names) == 1 or not isinstance(section, type):
        return found.description
    return _description(section, names[1:])


def _problems(error: ValidationError, settings_cls: type[DaemonSettings], command_line: ConfigLayer) -> Iterator[str]:
    all_layers = _all_layers(settings_cls, command_line)
    for each in error.errors(include_url=False, include_context=False, include_input=False):
        names = tuple(str(part) for part in each["loc"])
        message = str(each["msg"]).removeprefix("Value error, ")
        if each["type"] == "extra_forbidden":
            message = "no such setting" + suggest(names[-1], _siblings(settings_cls, names))
        elif each["type"] == "missing":
            message = "is required"
            if names == ("database",):
                message = "no database given: use --url, SHALE_URL or [database] url"
        yield f"{'.'.join(names)}: {message}{_place(names, all_layers)}" if names else message


def _all_layers(settings_cls: type[DaemonSettings], command_line: ConfigLayer) -> list[ConfigLayer]:
    """Return all layers, the strongest first."""
    config = command_line.values.get("config")
    return [command_line, *(_layer(name, settings_cls, config) for name in reversed(_WEAKEST_FIRST))]


def _place(names: Names, all_layers: Sequence[ConfigLayer]) -> str:
    for layer in all_layers:
        for leaf, origin in layer.origins.items():
            if leaf[: len(names)] == names or names[: len(leaf)] == leaf:
                return f" ({origin})"
    return ""


def _siblings(model: type[BaseModel], names: Names) -> list[str]:
    for name in names[:-1]:
        found = model.model_fields.get(name)
        section = config_sources.section_of(found.annotation) if found is not None else None
        if section is None:
            return []
        model = section
    return list(model.model_fields)
