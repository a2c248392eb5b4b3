"""Accepts the TLS connections of one port, whose handshakes count in its limits.

The servers of asyncio tell a protocol of its connection after the handshake only, so clients that send nothing would
hold any number of sockets.
"""

import asyncio
import errno
import socket
from collections.abc import Callable

from shale.core.address_limits import ConnectionCounts
from shale.core.lazy_dataclass import dataclass
from shale.service.tls.certificates import ServerCertificate

REFUSALS_MAX = 16
"""Connections beyond the limit whose handshake is made, so that they can be told why they are refused."""
_ACCEPTS_PER_ROUND = 16
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_BROKEN = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK)
"""Errors of the listener itself.  Linux returns others that belong to the connection, such as EPROTO (accept(2))."""
RETRY_S = 1.0
"""Seconds without an accept after the process had no free file descriptor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeLimits:
    """Limits of handshakes that run at the same time.

    Args:
        open_count: returns how many connections are open after their handshake; default: none.
        connections_max: connections that are served, which handshakes count to; ``None``: no limit.
        per_address: counts the open connections of addresses, and limits their handshakes; ``None``: no limit.
    """

    open_count: Callable[[], int] = int
    connections_max: int | None = None
    per_address: ConnectionCounts | None = None


class TlsListener:
    """A port whose connections begin with a handshake.  It has the methods of ``asyncio.Server`` that uvicorn calls.

    Args:
        listener: a bound socket that listens; it is closed at the end.
        make: returns the protocol of a connection.
        certificate: of the port; has the time limit of a handshake.
        limits: further connections are closed at once.
    """

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        certificate: ServerCertificate,
        limits: HandshakeLimits,
    ) -> None:
        self._listener = listener
        self._make = make
        self._certificate = certificate
        self._limits = limits
        self._addresses = None if limits.per_address is None else ConnectionCounts(limits.per_address.limit)
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._start()

    def close(self) -> None:
        """Accept no more, and end all handshakes; open connections stay."""
        if self._retry is not None:
            self._retry.cancel()
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
        for each in self._handshakes:
            each.cancel()

    async def wait_closed(self) -> None:
        """Wait for the end of the handshakes, after ``close``."""
        await asyncio.gather(*self._handshakes, return_exceptions=True)

    def _start(self) -> None:
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_ROUND):
            try:
                connection, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _BROKEN:
                    raise
                if error.errno not in _EXHAUSTED:
                    continue
                # The connection would be offered again in each round of the loop until a descriptor is free.
                self._loop.remove_reader(self._listener.fileno())
                self._retry = self._loop.call_later(RETRY_S, self._start)
                return
            self._begin(connection, peer[0] if peer else "")

    def _begin(self, connection: socket.socket, host: str) -> None:
        limits = self._limits
        count = limits.open_count() + len(self._handshakes)
        if limits.connections_max is not None and count >= limits.connections_max + REFUSALS_MAX:
            connection.close()
            return
        if not self._has_room_for(host):
            connection.close()
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._handshake(connection))
        self._handshakes.add(task)
        task.add_done_callback(lambda ended: self._ended(ended, host))

    def _has_room_for(self, host: str) -> bool:
        """Count a handshake of an address, unless it has too many connections; ``_ended`` forgets it.

        Those that are refused after their handshake stay for as long as their client does not agree to the end.
        """
        open_counts, handshakes = self._limits.per_address, self._addresses
        if open_counts is None or handshakes is None:
            return True
        is_within = open_counts.count(host) + handshakes.count(host) < open_counts.limit + REFUSALS_MAX
        if not handshakes.opened(host) or not is_within:
            handshakes.closed(host)
            return False
        return True

    async def _handshake(self, connection: socket.socket) -> None:
        certificate = self._certificate
        try:
            await self._loop.connect_accepted_socket(
                self._make,
                connection,
                ssl=certificate.context,
                ssl_handshake_timeout=certificate.handshake_timeout_s,
            )
        except OSError:  # a failed handshake, or one that took too long; the loop has closed the socket
            return

    def _ended(self, handshake: asyncio.Task[None], host: str) -> None:
        self._handshakes.discard(handshake)
        if self._addresses is not None:
            self._addresses.closed(host)
