"""The connections of a daemon with little memory: as many as fit into its limit, and they are counted."""

import contextlib
import re
import socket
import ssl
from pathlib import Path

from tests.certificates import Authority
from tests.integration.daemons.daemon_process import Daemon, running

LIMIT_BYTES = 179 << 20
PLAIN, PER_ADDRESS, TLS = 731, 365, 182
"""Of docs/how-to/operate/sizing.md."""
REQUEST = b"GET /v1/kv/none HTTP/1.1\r\nhost: localhost\r\n\r\n"


def connection_bytes(daemon: Daemon, context: ssl.SSLContext | None = None) -> float:
    """Return the memory of connections that a daemon tells."""
    admin = socket.create_connection(("127.0.0.1", daemon.port("admin_port")), timeout=10)
    with contextlib.closing(context.wrap_socket(admin, server_hostname="localhost") if context else admin) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\nhost: localhost\r\n\r\n")
        text = b"".join(iter(lambda: client.recv(1 << 16), b"")).decode()
    return float(re.findall(r'^shale_memory_bytes{part="connections"} (\S+)$', text, re.MULTILINE)[0])


def test_a_port_takes_what_memory_allows_and_half_of_it_from_one_address(tmp_path: Path) -> None:
    """The next connection of the address gets 429, and the first one beyond all 503."""
    options = ("--url", f"file://{tmp_path}/store/db", "--port", "0", "--set", f"memory.limit={LIMIT_BYTES}")
    with contextlib.ExitStack() as stack, running("shale_writer", *options, log=tmp_path / "log") as daemon:

        def status(address: str) -> str:
            client = stack.enter_context(socket.socket())
            client.settimeout(30)
            client.bind((address, 0))
            client.connect(("127.0.0.1", daemon.port("port")))
            client.sendall(REQUEST)
            return client.recv(1 << 16).split(b" ")[1].decode()

        assert {status("127.0.0.2") for _ in range(PER_ADDRESS)} == {"404"}
        assert status("127.0.0.2") == "429"
        assert {status(f"127.0.0.{3 + each % 2}") for each in range(PLAIN - PER_ADDRESS)} == {"404"}
        assert status("127.0.0.5") == "503"
        assert PLAIN * 16384 <= connection_bytes(daemon) <= (PLAIN + 4) * 16384


def test_connections_with_tls_are_fewer(tmp_path: Path) -> None:
    """Each takes four times as much; the first one beyond all is told so after its handshake."""
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    options = ["--url", f"file://{tmp_path}/store/db", "--port", "0", "--set", f"memory.limit={LIMIT_BYTES}"]
    options += [f"--set=tls.cert_file={cert}", f"--set=tls.key_file={key}"]
    context = authority.client()
    with contextlib.ExitStack() as stack, running("shale_writer", *options, log=tmp_path / "log") as daemon:

        def status(address: str) -> str:
            plain = socket.create_connection(
                ("127.0.0.1", daemon.port("port")), timeout=30, source_address=(address, 0)
            )
            client = stack.enter_context(context.wrap_socket(plain, server_hostname="localhost"))
            client.sendall(REQUEST)
            return client.recv(1 << 16).split(b" ")[1].decode()

        assert {status(f"127.0.0.{2 + each % 3}") for each in range(TLS)} == {"404"}
        assert status("127.0.0.5") == "503"
        assert TLS * 65536 <= connection_bytes(daemon, context) <= (TLS + 20) * 65536
