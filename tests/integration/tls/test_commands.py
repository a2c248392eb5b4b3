"""Commands that ask daemons over TLS: options name the authorities and the certificate of the client."""

import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.certificates import Authority
from tests.integration.cli.commands import answer, refusal, shale
from tests.integration.daemons.daemon_process import ENDED_S, running
from tests.integration.standby.standby_process import pair

VARIABLES = {"--ca-file": "SHALE_CA_FILE", "--client-cert-file": "SHALE_CLIENT_CERT_FILE"}
VARIABLES["--client-key-file"] = "SHALE_CLIENT_KEY_FILE"


class SecureWriter(NamedTuple):
    """A writer whose clients need a certificate, and the options with one that it takes."""

    url: str
    data: str
    admin: str
    options: dict[str, str]

    def arguments(self, *left_out: str) -> list[str]:
        return [word for option, file in self.options.items() if option not in left_out for word in (option, file)]


def server_settings(authority: Authority) -> list[str]:
    certificate, key = authority.issue("server")
    files = {"cert_file": certificate, "key_file": key, "client_ca_file": authority.ca_file}
    return [f"--set=tls.{name}={file}" for name, file in files.items()]


def client_options(authority: Authority) -> dict[str, str]:
    certificate, key = authority.issue("client")
    files = (authority.ca_file, certificate, key)
    return {option: str(file) for option, file in zip(VARIABLES, files, strict=True)}


@contextmanager
def secure_writer(folder: Path) -> Iterator[SecureWriter]:
    authority = Authority(folder)
    url = f"file://{folder}/store/orders"
    settings = server_settings(authority)
    with running("shale_writer", "--url", url, "--port", "0", *settings, log=folder / "log") as daemon:
        data, admin = (f"https://localhost:{daemon.port(name)}" for name in ("port", "admin_port"))
        yield SecureWriter(url, data, admin, client_options(authority))
        assert daemon.stop() == 0


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureWriter]:
    with secure_writer(tmp_path_factory.mktemp("secure")) as found:
        yield found


def test_rows_are_written_over_tls(writer: SecureWriter, tmp_path: Path) -> None:
    to = ("--endpoint", writer.data, *writer.arguments(), "-u", writer.url)
    assert shale("kv", "put", "a", "1", *to).returncode == 0
    assert shale("kv", "get", "a", "--raw", "-u", writer.url).stdout == b"1"
    rows = tmp_path / "rows.ndjson"
    rows.write_text('{"key": "b/1", "value": "1"}\n{"key": "b/2", "value": "2"}\n')
    assert shale("kv", "import", str(rows), *to).returncode == 0
    assert shale("kv", "delete", "a", *to).returncode == 0
    assert shale("kv", "delete", "--prefix", "b/1", "--yes", *to).returncode == 0
    assert answer("kv", "scan", "--count", "-u", writer.url)["rows"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("left_out", ["--ca-file", "--client-cert-file"])
def test_both_sides_are_checked(writer: SecureWriter, left_out: str) -> None:
    limit = "60s" if left_out == "--ca-file" else "5s"  # without a certificate it tries until the end
    to = ("--endpoint", writer.data, *writer.arguments(left_out), "--timeout", limit, "-u", writer.url)
    code, said = refusal("kv", "put", "refused", "1", *to)
    assert code in (69, 75), said
    assert ("certificate verify failed" in said) == (left_out == "--ca-file"), said
    assert shale("kv", "get", "refused", "-u", writer.url).returncode == 3


def test_variables_are_the_options(writer: SecureWriter) -> None:
    variables = {VARIABLES[option]: file for option, file in writer.options.items()}
    put = ("kv", "put", "c", "1", "--endpoint", writer.data, "-u", writer.url)
    assert shale(*put, stdin=b"", **variables).returncode == 0
    absent = {**variables, "SHALE_CA_FILE": "absent.pem"}
    code, said = refusal(*put, **absent)
    assert (code, "absent.pem" in said) == (2, True), said
    given = ("--ca-file", writer.options["--ca-file"])
    assert shale(*put, *given, stdin=b"", **absent).returncode == 0, "an option overrides its variable"


def test_a_clone_asks_the_writer_of_its_source(writer: SecureWriter) -> None:
    assert (
        shale("kv", "put", "d", "1", "--endpoint", writer.data, *writer.arguments(), "-u", writer.url).returncode == 0
    )
    clone = f"{writer.url}-clone"
    source = ("--source", writer.url, "--writer-url", writer.admin)
    made = answer("clone", "create", *source, *writer.arguments(), "-u", clone)
    assert made["sources"][0]["checkpoint"] is not None
    assert shale("kv", "get", "d", "--raw", "-u", clone).stdout == b"1"


@pytest.mark.parametrize("left_out", [(), ("--ca-file",)])
def test_a_bundle_has_the_pages_of_a_daemon(writer: SecureWriter, left_out: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    options = ("--daemon", writer.admin, *writer.arguments(*left_out), "--no-verify")
    found = answer("debug", "bundle", "-f", str(file), *options, "-u", writer.url)
    with tarfile.open(file) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert ("daemons/0/metrics.txt" in names) == (left_out == ())
    assert ("certificate verify failed" in json.dumps(found["left_out"])) == (left_out != ())


def test_the_health_check_trusts_an_authority(writer: SecureWriter) -> None:
    ca_file = writer.options["--ca-file"]
    assert shale("healthcheck", "--admin", writer.admin, "--ca-file", ca_file).returncode == 0
    code, said = refusal("healthcheck", "--admin", writer.admin)
    assert (code, "certificate verify failed" in said) == (4, True), said
    code, said = refusal("healthcheck", "--admin", writer.admin, "--ca-file", "absent.pem", SHALE_CA_FILE=ca_file)
    assert code == 4, "an option overrides its variable"


@pytest.mark.slow
def test_a_standby_is_promoted_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    options = client_options(authority)
    given = [word for pair_ in options.items() for word in pair_]
    with pair(tmp_path, *server_settings(authority)) as (first, second):
        admin = ("--admin", f"https://localhost:{second.admin_port}")
        code, said = refusal("writer", "promote", *admin, *given[:2])
        assert code != 0, said
        assert answer("writer", "promote", *admin, *given)["promoted"]
        assert first.daemon.process.wait(ENDED_S) == 80
