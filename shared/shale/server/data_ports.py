"""Opens the data ports of a writer or reader daemon, and serves its database until the daemon stops."""

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from shale.api.app import Api
from shale.core.address_limits import ConnectionCounts
from shale.core.lazy_dataclass import dataclass
from shale.engine.db import Db
from shale.engine.db_reader import DbReader
from shale.errors import FencedError
from shale.resp.options import RespOptions
from shale.server.front_page import FrontPage
from shale.server.settings import ServerSettings
from shale.service.access import AccessTokens, Quotas
from shale.service.health import ServiceState
from shale.service.http.server import NO_LIMITS, ConnectionLimits, open_socket, serve_app
from shale.service.latency import Latency
from shale.service.memory.process_memory import ProcessMemory
from shale.service.process import PortServices, Process
from shale.service.runtime_tuning import connections_within_open_files
from shale.service.shutdown import wait_until_stopped
from shale.service.tls.certificates import ServerCertificate

S = TypeVar("S", bound=ServerSettings)

_RESP_DEFAULTS = RespOptions()
_HTTP_EIGHTHS, _RESP_EIGHTHS = 3, 1
"""Of the files that the process may open."""


@dataclass(frozen=True, slots=True)
class DataPorts:
    """Bound sockets; ``resp`` is ``None`` if the Redis port is disabled.  ``limits`` are those of the HTTP port."""

    http: socket.socket
    resp: socket.socket | None
    certificate: ServerCertificate | None = None
    limits: ConnectionLimits = NO_LIMITS

    def numbers(self) -> dict[str, int]:
        """Return the port numbers for the log line of readiness."""
        numbers = {"port": self.http.getsockname()[1]}
        return numbers if self.resp is None else {**numbers, "resp_port": self.resp.getsockname()[1]}


@contextlib.contextmanager
def open_data_ports(
    settings: ServerSettings, certificate: ServerCertificate | None = None, memory: ProcessMemory | None = None
) -> Iterator[DataPorts]:
    """Bind the data ports before the database is opened, so that a port in use fails the start at once.

    Args:
        settings: of the daemon.
        certificate: of TLS; ``None``: no TLS.
        memory: counts the connections of the HTTP port; the Redis port counts its own.

    Raises:
        InvalidRequestError: an address is in use or not of this host; names the setting.
    """
    http, resp = settings.http, settings.resp
    with contextlib.ExitStack() as stack:
        http_socket = stack.enter_context(open_socket(http.host, http.port, setting="http.port"))
        resp_socket = None
        if resp.enabled:
            resp_socket = stack.enter_context(open_socket(resp.host, resp.port, setting="resp.port"))
        addresses = ConnectionCounts(http.max_connections_per_address)
        limits = ConnectionLimits(
            connections_max=connections_within_open_files(http.max_connections, _HTTP_EIGHTHS),
            per_address=addresses,
            send_timeout_s=http.send_timeout,
        )
        if memory is not None:
            memory.count_connections(lambda: addresses.total, tls=certificate is not None)
        yield DataPorts(http_socket, resp_socket, certificate, limits)


def sampled_latency(process: Process[S]) -> Latency:
    """Return what observes the calls of the database; its share follows reloads."""
    latency = Latency(process.env, process.settings.metrics.sample_rate)

    def sample(changed: S) -> None:
        latency.sample_rate = changed.metrics.sample_rate

    process.add_reload_callback(sample)
    return latency


def data_tokens(process: Process[S]) -> AccessTokens:
    """Return the tokens of the HTTP port, with the quotas of the process; a reload replaces both."""
    quotas = Quotas(process.env.clock, process.metrics, process.settings.quotas.rates())
    process.add_reload_callback(lambda changed: quotas.replace(changed.quotas.rates()))
    tokens = AccessTokens(
        process.settings.data_tokens(),
        settings=("tokens", "http.bearer_token"),
        quotas=quotas,
        failures=process.admin.tokens.failures,
        is_local=process.settings.is_local(process.settings.http.host),
    )
    process.add_reload_callback(lambda changed: tokens.replace(changed.data_tokens()))
    return tokens


def port_services(process: Process[S]) -> PortServices:
    """Return what the data ports share."""
    return PortServices(latency=sampled_latency(process), tokens=data_tokens(process), memory=process.memory)


async def serve_database(
    process: Process[S],
    ports: DataPorts,
    db: Db | DbReader,
    api: Api,
    *,
    max_key_bytes: int = _RESP_DEFAULTS.max_key_bytes,
) -> None:
    """Serve the database on its data ports until the process has to stop.

    The order at the end: new requests get a 503, running ones finish within ``shutdown.request_timeout``, and only then
    the caller closes the database.

    Raises:
        FencedError: another writer took over.
        ShaleError: the database failed and cannot be served any more.
    """
    settings = process.settings
    drain_s = settings.shutdown.request_timeout
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(api.running())
        limits = replace(ports.limits, unread=api.memory.unread, metrics=process.metrics)
        page = FrontPage(
            api,
            role=settings.ROLE,
            admin_host=settings.admin.host,
            admin_port=process.admin_port,
            scheme=settings.tls.scheme,
        )
        await stack.enter_async_context(
            serve_app(page, ports.http, request_timeout_s=drain_s, limits=limits, certificate=ports.certificate)
        )
        if ports.resp is not None:
            from shale.resp.server import serve_resp

            options = settings.resp.options(max_key_bytes=max_key_bytes)
            most = connections_within_open_files(options.max_connections, _RESP_EIGHTHS)
            options = replace(options, max_connections=most)
            tokens = AccessTokens(
                settings.resp_tokens(),
                settings=("tokens", "http.bearer_token", "resp.bearer_token"),
                quotas=api.quotas,
                failures=process.admin.tokens.failures,
            )
            process.add_reload_callback(lambda changed: tokens.replace(changed.resp_tokens()))
            await stack.enter_async_context(
                serve_resp(
                    db,
                    ports.resp,
                    process.env,
                    process.metrics,
                    options,
                    services=PortServices(tokens=tokens, memory=api.memory, certificate=ports.certificate),
                    drain_timeout_s=drain_s,
                )
            )
        process.ready(**ports.numbers())
        failure = await wait_until_stopped(process.draining, db.status.wait_failed if isinstance(db, Db) else db.failed)
        if isinstance(failure, FencedError):
            process.health.set_state(ServiceState.FENCED)
        api.draining = True
    if failure is not None:
        raise failure
