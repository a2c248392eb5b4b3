"""Ports for servers that a test starts as child processes."""

from shale_cli.framework.ports import PortReservation

_RESERVED = PortReservation()


def free_port() -> int:
    """Return a free port of the loopback address, which stays reserved for child processes of this process."""
    return _RESERVED.reserve()
