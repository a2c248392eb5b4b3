"""The data ports of a writer or reader daemon."""

import socket

import pytest

from shale.errors import InvalidRequestError
from shale.server.data_ports import open_data_ports
from shale_reader.settings import ReaderSettings


def settings(**ports: object) -> ReaderSettings:
    return ReaderSettings.model_validate({"database": {"url": "memory:///db"}, **ports})


def test_the_redis_port_is_bound_only_if_it_is_enabled() -> None:
    with open_data_ports(settings(http={"port": 0})) as ports:
        assert ports.resp is None
        assert set(ports.numbers()) == {"port"}
    with open_data_ports(settings(http={"port": 0}, resp={"enabled": True, "port": 0})) as ports:
        assert set(ports.numbers()) == {"port", "resp_port"}
        assert all(number > 0 for number in ports.numbers().values())


@pytest.mark.parametrize("section", ["http", "resp"])
def test_a_port_in_use_is_reported_with_its_setting(section: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = {"http": {"port": 0}, "resp": {"enabled": True, "port": 0}}
        ports[section]["port"] = taken.getsockname()[1]
        with pytest.raises(InvalidRequestError, match=rf"^{section}\.port: "), open_data_ports(settings(**ports)):
            pytest.fail("the port is in use")


def test_all_sockets_are_closed_at_the_end() -> None:
    with open_data_ports(settings(http={"port": 0}, resp={"enabled": True, "port": 0})) as ports:
        sockets = [ports.http, ports.resp]
    assert [each.fileno() for each in sockets if each is not None] == [-1, -1]
