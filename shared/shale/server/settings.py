"""The settings that the writer and the reader share: both serve one open database."""

from collections.abc import Callable
from typing import Any, ClassVar

from pydantic import Field, SecretStr

from shale.api.settings import HttpSection
from shale.core.memory_plan import MemoryShare
from shale.engine.options import DbOptions
from shale.errors import InvalidRequestError
from shale.merge_operators import resolve_operator
from shale.resp.settings import RespSection
from shale.server.memory_shares import RESPONSES, http_shares, resp_shares
from shale.service.access import Role, TokenRole
from shale.service.config.access.exposed_ports import ListeningPort
from shale.service.config.access.quotas_section import QuotasSection
from shale.service.config.sections import (
    DiskCacheSection,
    Filters,
    FilterSection,
    KeyRangeSection,
    SegmentExtractorSection,
)
from shale.service.config.settings import DaemonSettings, ProbeMaxStaleness


def validate_options(options: Callable[[], object], merge_operator: str | None) -> None:
    """Check in a settings validator that the engine accepts the options and knows the merge operator.

    Raises:
        ValueError: the options are invalid, or the merge operator is unknown.
    """
    try:
        resolve_operator(merge_operator)
    except InvalidRequestError as error:
        raise ValueError(f"merge_operator: {error}") from error
    try:
        options()
    except InvalidRequestError as error:
        raise ValueError(str(error)) from error


class ServerSettings(DaemonSettings):
    """The settings of a daemon that serves a database."""

    RELOADED: ClassVar[tuple[str, ...]] = (
        *DaemonSettings.RELOADED, "http.bearer_token", "quotas", "resp.bearer_token",
    )  # fmt: skip

    http: HttpSection = HttpSection()
    resp: RespSection = RespSection()
    quotas: QuotasSection = QuotasSection()
    merge_operator: str | None = Field(
        default=None,
        description="Built-in or registered name, or module:attribute; every process must use the same operator.",
    )
    segment_extractor: SegmentExtractorSection | None = Field(
        default=None,
        description="Assigns keys to segments; a database keeps the extractor with which it was created.",
    )
    enforce_visible_range: KeyRangeSection | None = Field(
        default=None,
        description="For one part of a split database: reject writes outside this range, and reads fully outside.",
    )
    disk_cache: DiskCacheSection | None = Field(default=None, description="A local disk cache for parts of SSTs.")
    filters: Filters = (FilterSection(),)
    probe_max_staleness: ProbeMaxStaleness = DbOptions().probe_max_staleness_s

    def data_tokens(self) -> list[TokenRole]:
        """Return the tokens of the HTTP port."""
        return [*self.tokens.roles(), *_writing(self.http.bearer_token)]

    def resp_tokens(self) -> list[TokenRole]:
        """Return the passwords of the Redis port."""
        own = self.resp.bearer_token
        return [*self.tokens.roles(), *_writing(self.http.bearer_token if own is None else own)]

    def listening_ports(self) -> list[ListeningPort]:
        """Return the ports that the daemon opens."""
        http, resp, has_mtls = self.http, self.resp, self.tls.client_ca_file is not None
        is_protected = has_mtls or bool(self.data_tokens())
        ports = [ListeningPort("http", http.host, is_protected, "tokens.write (or http.bearer_token)")]
        if resp.enabled:
            is_protected = has_mtls or bool(self.resp_tokens())
            ports.append(ListeningPort("resp", resp.host, is_protected, "tokens.write (or resp.bearer_token)"))
        return [*ports, *super().listening_ports()]

    def requires_admin_token(self) -> bool:
        """Whether the admin port is closed until a token is set for it."""
        return super().requires_admin_token() or bool(self.data_tokens() or self.resp_tokens())

    def memory_shares(self) -> tuple[MemoryShare, ...]:
        """Return the settings that bound requests, responses and connections, and those of the daemon."""
        tls = self.tls.is_on
        commands = resp_shares(tls=tls) if self.resp.enabled else ()
        return (*self.engine_shares(), *http_shares(tls=tls), *commands, RESPONSES)

    def engine_shares(self) -> tuple[MemoryShare, ...]:
        """Return the settings that bound the memory of the engine."""
        return ()

    def engine_values(self) -> dict[str, Any]:
        """Return the engine options that are made from whole sections."""
        extractor, visible, cache = self.segment_extractor, self.enforce_visible_range, self.disk_cache
        return {
            "segment_extractor": None if extractor is None else extractor.extractor(),
            "enforce_visible_range": None if visible is None else visible.keys(),
            "disk_cache": None if cache is None else cache.options(),
            "filter_policies": tuple(each.policy() for each in self.filters),
        }


def _writing(token: SecretStr | None) -> list[TokenRole]:
    """Return the token of a data port, which may read and write rows."""
    return [] if token is None else [(token, Role.WRITE)]
