"""TLS of all ports of a writer: certificates of server and clients, and their replacement while it runs."""

import contextlib
import http.client
import signal
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from shale.client import SyncClient
from shale.errors import InvalidRequestError, UnavailableError
from shale_cli.framework.probe import probe
from tests.certificates import START, Authority
from tests.integration.daemons.daemon_process import ENDED_S, metric, running

WAIT_S = 30.0
RESP = ("--set=resp.enabled=true", "--set=resp.port=0")


def _files(certificate: tuple[Path, Path], *more: str) -> list[str]:
    return [f"--set=tls.cert_file={certificate[0]}", f"--set=tls.key_file={certificate[1]}", *more]


def _request(
    method: str, path: str, port: int, context: ssl.SSLContext, body: bytes | None = None, token: str | None = None
) -> tuple[int, bytes]:
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=WAIT_S)
    try:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _serial(port: int, context: ssl.SSLContext) -> str:
    with (
        socket.create_connection(("localhost", port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        found = connection.getpeercert()
        assert found is not None
        return str(found["serialNumber"])


def _wait_until(is_right: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_right():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.mark.slow
def test_all_ports_have_tls_and_take_a_new_certificate_without_a_restart(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files, context = authority.issue("server"), authority.client()
    settings = _files(files, "--set=tls.check_interval=50ms", "--set=tls.handshake_timeout=500ms")
    url = f"file://{tmp_path}/store/orders"
    with running("shale_writer", "--url", url, "--port", "0", *RESP, *settings, log=tmp_path / "log") as daemon:
        data, resp, admin = (daemon.port(name) for name in ("port", "resp_port", "admin_port"))
        assert _request("PUT", "/v1/kv/a", data, context, b"1")[0] == 204
        assert _request("GET", "/readyz", admin, context)[0] == 200
        options = {"ssl": True, "ssl_ca_certs": str(authority.ca_file), "host": "localhost"}
        with redis.Redis(port=resp, **options) as client:  # type: ignore[call-overload]
            assert client.get("a") == b"1"

        for port in (data, resp, admin):
            with socket.create_connection(("127.0.0.1", port)) as plain:
                plain.settimeout(WAIT_S)
                plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert not plain.recv(100).startswith(b"HTTP"), "a client without TLS gets no answer"
            with socket.create_connection(("127.0.0.1", port)) as silent:
                silent.settimeout(WAIT_S)
                assert silent.recv(100) == b"", "a handshake has a time limit"

        old = _serial(data, context)
        files[0].write_text("no certificate")
        warning = daemon.wait_for("tls.reload.failed")
        assert warning["level"] == "warning"
        assert "tls.cert_file" in warning["error"]
        assert _serial(data, context) == old
        text = _request("GET", "/metrics", admin, context)[1].decode()
        assert metric(text, "shale_tls_last_reload_success") == 0

        until = START.replace(year=2050)
        authority.issue("server", until=until)
        for port in (data, resp, admin):
            _wait_until(lambda port=port: _serial(port, context) != old, "the new certificate")  # type: ignore[misc]
        text = _request("GET", "/metrics", admin, context)[1].decode()
        assert metric(text, "shale_tls_last_reload_success") == 1
        assert metric(text, "shale_tls_certificate_expiry_timestamp_seconds") == until.timestamp()
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.log.read_text()


def test_clients_of_ours_know_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    settings = _files(authority.issue("server"), f"--set=tls.client_ca_file={authority.ca_file}")
    url, (certificate, key) = f"file://{tmp_path}/store/orders", authority.issue("client")
    with running("shale_writer", "--url", url, "--port", "0", *settings, log=tmp_path / "log") as daemon:
        data, admin = daemon.port("port"), daemon.port("admin_port")
        files = {"ca_file": str(authority.ca_file), "cert_file": str(certificate), "key_file": str(key)}
        with SyncClient(f"https://localhost:{data}", **files) as client:  # type: ignore[arg-type]
            client.put(b"a", b"1")
            assert client.get(b"a") == b"1"
        with (
            SyncClient(
                f"https://localhost:{data}", attempts=1, cert_file=str(certificate), key_file=str(key)
            ) as client,
            pytest.raises(UnavailableError),
        ):
            client.get(b"a")
        assert probe(f"https://localhost:{admin}") == 4, "an unknown authority"
        monkeypatch.setenv("SHALE_TLS__CERT_FILE", "known to the daemon beside")
        assert probe(f"127.0.0.1:{admin}") == 0
        monkeypatch.setenv("SHALE_CA_FILE", str(authority.ca_file))
        assert probe(f"https://localhost:{admin}") == 0
        assert daemon.stop() == 0
    assert "certificate verify failed" in capsys.readouterr().err
    with pytest.raises(InvalidRequestError, match=r"absent\.pem"):
        SyncClient("https://localhost:1", ca_file="absent.pem")


def test_clients_need_a_certificate_of_the_authority(tmp_path: Path) -> None:
    """Health and metrics of the admin port do without one.  Such ports may be open to other machines."""
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    settings = _files(authority.issue("server"), f"--set=tls.client_ca_file={authority.ca_file}")
    url = f"file://{tmp_path}/store/orders"
    # Short for 127.0.0.1; but for ``localhost`` a name counts as the address of other machines.
    hosts = ("--set=http.host=127.1", "--set=admin.host=127.1")
    with running("shale_writer", "--url", url, "--port", "0", *hosts, *settings, log=tmp_path / "log") as daemon:
        data, admin = daemon.port("port"), daemon.port("admin_port")
        known = authority.client(authority.issue("client"))
        unknown = authority.client(other.issue("stranger"))
        assert _request("PUT", "/v1/kv/a", data, known, b"1")[0] == 204
        for context in (authority.client(), unknown):
            with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
                _request("GET", "/v1/kv/a", data, context)
        assert _request("GET", "/readyz", admin, authority.client())[0] == 200
        assert _request("GET", "/metrics", admin, authority.client())[0] == 200
        assert _request("POST", "/v1/admin/flush", admin, authority.client())[0] == 403
        assert _request("POST", "/v1/admin/flush", admin, known)[0] == 204
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.log.read_text()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_session_outlives_the_authority_of_its_certificate(version: ssl.TLSVersion, tmp_path: Path) -> None:
    """OpenSSL keeps sessions of TLS 1.2 for two hours, and resumes them without a look at the certificate."""
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    settings = _files(authority.issue("server"), f"--set=tls.client_ca_file={tmp_path / 'clients.pem'}")
    (tmp_path / "clients.pem").write_bytes(authority.ca_file.read_bytes())
    url = f"file://{tmp_path}/store/orders"
    context = authority.client(authority.issue("client"))
    context.maximum_version = version

    def request(port: int, session: ssl.SSLSession | None) -> ssl.SSLSession | None:
        with (
            socket.create_connection(("localhost", port), timeout=WAIT_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as connection,
        ):
            connection.sendall(b"GET /v1/kv/none HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            if not connection.recv(1).startswith(b"H"):
                raise ConnectionError
            return connection.session

    with running("shale_writer", "--url", url, "--port", "0", *settings, log=tmp_path / "log") as daemon:
        session = None
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            session = request(daemon.port("port"), None)
        assert (session is None) == (version is ssl.TLSVersion.TLSv1_2)
        (tmp_path / "clients.pem").write_bytes(other.ca_file.read_bytes())
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for("tls.reloaded")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            request(daemon.port("port"), session)


def test_a_key_of_another_certificate_is_a_wrong_setting(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("one")[0], authority.issue("two")[1]
    url = f"file://{tmp_path}/store/orders"
    with running("shale_writer", "--url", url, *_files((certificate, key)), log=tmp_path / "log") as daemon:
        assert daemon.process.wait(ENDED_S) == 78
        assert "tls.cert_file" in daemon.log.read_text()
