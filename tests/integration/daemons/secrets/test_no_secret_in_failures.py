"""What a process writes that fails holds no secret: broken files of secrets, stores that refuse, crashes."""

import json
import tarfile
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from shale.errors import InvalidRequestError
from shale.service.config.settings import load_settings
from shale_cli.framework.daemons import settings_class
from tests.integration.daemons.secrets.planted_secrets import assert_clean, run
from tests.integration.store.servers import http_server

DAEMONS = {
    "writer": "shale_writer",
    "compactor": "shale_compactor",
    "worker": "shale_compactor.worker",
    "gc": "shale_gc",
    "reader": "shale_reader",
}
CRASHING = "tests.integration.daemons.secrets.crashing_daemon"
AT_ONCE = ("--set", "shutdown.linger=0", "--admin-port", "0")
BAD_FILES: dict[str, tuple[str, bytes]] = {
    "a key that is no key": ("keys", b"k1 planted-key\n"),
    "keys that are no text": ("keys", b"k1 planted-key\xff\n"),
    "a short key": ("keys", b"k1 feedfacefeedface\n"),
    "a key without a name": ("keys", b"feedfacefeedfacefeedfacefeedface\n"),
    "a token that is no token": ("secrets/tokens__read", b"planted-one planted-tw\xc3\xb6\n"),
    "a token that is no text": ("secrets/tokens__write", b"planted-\xff\n"),
    "a secret of a section": ("secrets/store", b"planted-section\n"),
    "half a credential": ("secrets/store__session_token", b"planted\x00session\n"),
    "bad TOML": ("c.toml", b"[store]\nsession_token = planted-toml\n"),
    "a table for a secret": ("c.toml", b"[store]\nsession_token = {a = 'planted-table'}\n"),
    "a list for a token": ("c.toml", b"[tokens]\nread = [['planted-list']]\n"),
    "bad YAML": ("c.yaml", b"store:\n  session_token: 'planted-yaml\n"),
    "an alias in YAML": ("c.yaml", b"store:\n  session_token: *planted-yaml\n"),
}
HARMLESS = ("a secret of a section", "half a credential")
"""Files that are no error, or not alone."""
IN_PROCESSES = ("a key that is no key", "a token that is no token", "bad YAML")
"""Files that processes read, too: those of all kinds would take minutes."""


def broken_file(folder: Path, what: str) -> tuple[Path, dict[str, str], tuple[str, ...]]:
    """Write a file; return it with the variables and the options with which a process reads it."""
    name, content = BAD_FILES[what]
    file = folder / name.replace("keys", "broken-keys")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    variables = {"SHALE_SECRETS_DIR": str(folder / "secrets"), "SHALE_STORE__ENDPOINT": "http://127.0.0.1:1"}
    if name.startswith("secrets/tokens"):
        variables |= {"SHALE_TOKENS__READ": "", "SHALE_TOKENS__WRITE": ""}  # they would win
    if name == "keys":
        variables["SHALE_ENCRYPTION__KEY_FILE"] = str(file)
    return file, variables, ("--config", str(file)) if file.suffix else ()


@pytest.mark.parametrize("what", BAD_FILES)
def test_an_error_about_a_broken_file_does_not_hold_its_content(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, variables, options = broken_file(tmp_path, what)
    for name, text in variables.items():
        if text:
            monkeypatch.setenv(name, text)
    for role in DAEMONS:
        try:
            load_settings(settings_class(role), ["-u", "memory:///db", *options]).settings.block_transformer()
        except InvalidRequestError as error:
            shown = "".join(traceback.format_exception(error))
            assert file.name in shown
            assert_clean(shown.replace(str(tmp_path), ""), role)
        else:
            assert what in HARMLESS, role


@pytest.mark.slow
@pytest.mark.parametrize("what", IN_PROCESSES)
def test_processes_do_not_show_the_content_of_a_broken_file(tmp_path: Path, what: str) -> None:
    file, variables, config = broken_file(tmp_path, what)
    url = ("-u", f"file://{tmp_path}/db")
    for role, module in DAEMONS.items():
        if file.name == "broken-keys" and role == "gc":
            continue  # the collector decrypts nothing
        text = run(tmp_path, *url, *config, *AT_ONCE, module=module, **variables)
        assert_clean(text, role)
        assert file.name in text
    for command in (("up", "--port", "0", "--admin-port", "0"), ("config", "show", "writer")):
        assert_clean(run(tmp_path, *config, *command, *url, **variables), str(command))


@pytest.mark.parametrize("format_", ["json", "console"])
@pytest.mark.parametrize(("kind", "code"), [("panic", 70), ("unexpected", 1), ("task", 1)])
def test_a_crash_shows_no_text_and_no_variables_with_secrets(
    tmp_path: Path, kind: str, code: int, format_: str
) -> None:
    place = ("-u", f"file://{tmp_path}/db")
    text = run(tmp_path, *place, *AT_ONCE, module=CRASHING, CRASH=kind, SHALE_LOG__FORMAT=format_)
    log = tmp_path / "log"
    log.write_text(text)
    assert_clean(text, kind)
    assert "http://user:***@127.0.0.1:1" in text
    if format_ == "json":
        assert json.loads(text.splitlines()[-1])["exit_code"] == code
    if kind != "panic":
        assert "ConnectionError" in text, "the traceback has the cause"
    bundle = tmp_path / "bundle.tar.gz"
    assert_clean(run(tmp_path, "debug", "bundle", "-f", str(bundle), "--log", str(log), *place), "debug bundle")
    with tarfile.open(bundle) as tar:
        for member in tar.getmembers():
            file = tar.extractfile(member)
            assert file is not None
            assert_clean(file.read().decode(), member.name)


class Refusing(BaseHTTPRequestHandler):
    """Refuses every request, and quotes it."""

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        text = f"<Error><Code>Teapot</Code><Message>{self.path} {self.headers}</Message></Error>".encode()
        self.send_response(400)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815 - the server's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the standard library
        """Write nothing."""


@pytest.fixture
def refusing() -> Iterator[str]:
    with http_server(Refusing) as url:
        yield url


HEADER = "authorization=Bearer planted-header two,planted-other"
OTEL = {
    "SHALE_TRACING__ENABLED": "true",
    "SHALE_TRACING__SAMPLE_RATIO": "1",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://user:planted-otel@127.0.0.1:1",
    "OTEL_EXPORTER_OTLP_HEADERS": HEADER,
}
PROXY = "http://user:planted-proxy@127.0.0.1:1"
AZURE = {"AZURE_STORAGE_ACCOUNT_NAME": "acc"}
SAS = AZURE | {"AZURE_STORAGE_SAS_TOKEN": "sv=2&sig=planted-signature"}
STORES: dict[str, tuple[str, dict[str, str]]] = {
    "userinfo": ("s3://bucket/db", {"SHALE_STORE__ENDPOINT": "http://user:planted-endpoint@{}"}),
    "a token as userinfo": ("s3://bucket/db", {"SHALE_STORE__ENDPOINT": "http://planted-token@{}"}),
    "SAS": ("az://bucket/db", SAS | {"SHALE_STORE__ENDPOINT": "http://{}/acc"}),
    "a proxy": ("s3://bucket/db", {"SHALE_STORE__ENDPOINT": "https://host.invalid", "HTTPS_PROXY": PROXY}),
    "a proxy that is no URL": (
        "s3://bucket/db",
        {"SHALE_STORE__ENDPOINT": "http://{}", "HTTP_PROXY": "u:planted-p@:x"},
    ),
    "records": (
        "s3://bucket/db",
        {
            "SHALE_STORE__ENDPOINT": "http://{}",
            "SHALE_STORE__CAS": "two-phase",
            "SHALE_STORE__TRANSACTIONAL_URL": "postgresql://user@127.0.0.1:1/db?password=planted-query",
        },
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "module"),
    [*((kind, "shale_writer") for kind in STORES), ("userinfo", "shale_reader"), ("userinfo", "shale_gc")],
)
def test_a_store_that_refuses_is_told_without_secrets(tmp_path: Path, refusing: str, kind: str, module: str) -> None:
    url, variables = STORES[kind]
    variables = {name: text.format(refusing.removeprefix("http://")) for name, text in variables.items()}
    start = ("--set", "store.start_timeout=2s", "--set", "store.request_timeout=1s", "--log-level", "debug")
    text = run(tmp_path, "-u", url, *start, *AT_ONCE, module=module, **OTEL, **variables)
    assert "daemon.failed" in text
    assert "OTEL_EXPORTER_OTLP_HEADERS: a header was ignored" in text
    assert_clean(text, kind)
