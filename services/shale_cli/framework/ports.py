"""Ports that this process chooses for its child processes."""

import socket
from types import TracebackType
from typing import Self

LOOPBACK = "127.0.0.1"


class PortReservation:
    """Holds ports from their choice until child processes listen on them.

    A port that was only looked up is free until a child binds it; on a busy machine another process takes
    it.  These sockets are bound and never listen.  The kernel gives their ports to no other process that asks for any
    port, but a child that sets ``SO_REUSEADDR``, as all daemons do, can listen on them.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def reserve(self, port: int = 0) -> int:
        """Reserve a port of the loopback address; 0: any free one.

        Raises:
            OSError: another process listens on the port.
        """
        reserved = socket.socket()
        try:
            if port:  # also one that an ended process left in TIME_WAIT
                reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind((LOOPBACK, port))
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError:
            reserved.close()
            raise
        self._sockets.append(reserved)
        number: int = reserved.getsockname()[1]
        return number

    def close(self) -> None:
        """Release all ports that no process listens on."""
        while self._sockets:
            self._sockets.pop().close()
