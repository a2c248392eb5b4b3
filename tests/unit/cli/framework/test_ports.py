"""Ports that a supervisor reserves for its children."""

import socket
from contextlib import ExitStack

import pytest

from shale.service.http.server import open_socket
from shale_cli.framework.ports import LOOPBACK, PortReservation


def bind(port: int) -> socket.socket:
    bound = socket.socket()
    try:
        bound.bind((LOOPBACK, port))
    except OSError:
        bound.close()
        raise
    return bound


def test_no_other_process_gets_a_reserved_port_before_the_child_listens() -> None:
    with PortReservation() as ports:
        port = ports.reserve()
        with pytest.raises(OSError, match="in use"):
            bind(port)
        child = open_socket(LOOPBACK, port, setting="http.port")
        with child, socket.create_connection((LOOPBACK, port), timeout=60) as client:
            assert client.getpeername()[1] == port
        with pytest.raises(OSError, match="in use"):  # the child ended; the supervisor still holds the port
            bind(port)
    bind(port).close()


def test_ports_of_one_reservation_differ_from_each_other_and_from_those_of_others() -> None:
    with PortReservation() as ports, ExitStack() as others:
        mine = {ports.reserve() for _ in range(200)}
        theirs = {others.enter_context(bind(0)).getsockname()[1] for _ in range(200)}
    assert (len(mine), len(theirs), mine & theirs) == (200, 200, set())


def test_a_port_on_which_another_process_listens_is_refused() -> None:
    with (
        socket.create_server((LOOPBACK, 0)) as listener,
        PortReservation() as ports,
        pytest.raises(OSError, match="in use"),
    ):
        ports.reserve(listener.getsockname()[1])
