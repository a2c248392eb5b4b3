"""``shale debug bundle``: its contents, and the secrets that it must not contain."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.integration.cli.goldens import Golden
from tests.integration.store.servers import http_server
from tests.paths import PYTHONPATH

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIplanted/one",
    "SHALE_ADMIN__BEARER_TOKEN": "bearer-planted-two-0123456789",
    "SOME_PASSWORD": "planted-three-hunter2",
}
IN_A_FILE = "planted-four-of-a-secret-file"
KEY_IN_FILE = "feedfacefeedfacefeedfacefeedface"
IN_A_URL = "planted-six-in-a-url"
BY_ITS_LOOKS = ("AKIAPLANTEDSEVEN0000", "eyJhbGciOi.planted8.signature", "planted-nine-of-a-password")
KEY, VALUE = "planted-key-of-a-row", "planted-value-of-a-row"
LINES = (
    json.dumps({"event": "put", "key": KEY, "value": VALUE, "api_token": BY_ITS_LOOKS[1], "seq": 7}),
    f"2026-01-01 put key={KEY} value='{VALUE}' failed at b'{KEY}' with password={BY_ITS_LOOKS[2]}",
    f"GET https://user:{IN_A_URL}@host/ Authorization: Bearer {SECRETS['SHALE_ADMIN__BEARER_TOKEN']}",
    f"credentials {BY_ITS_LOOKS[0]} and {SECRETS['AWS_SECRET_ACCESS_KEY']} and {SECRETS['SOME_PASSWORD']}",
    f"file says {IN_A_FILE}, key file {KEY_IN_FILE}",
)


class _Daemon(BaseHTTPRequestHandler):
    """A server that answers every request with the same secrets."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write("\n".join(["shale_up 1", *LINES]).encode())

    def log_message(self, *_: object) -> None:
        """Write no log."""


@pytest.fixture
def daemon() -> Iterator[str]:
    with http_server(_Daemon) as url:
        yield url


@pytest.fixture
def planted(golden: Golden, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Create a database with secrets in its settings, environment and logs."""
    where = f"file://{tmp_path}/db"
    (tmp_path / "keys").write_text(f"k1 {KEY_IN_FILE}\n")
    monkeypatch.setenv("SHALE_ENCRYPTION__KEY_FILE", str(tmp_path / "keys"))
    golden.run("kv", "put", KEY, VALUE, "-u", where)
    golden.run("kv", "put", f"{KEY}-2", VALUE, "-u", where)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "writer__http__bearer_token").write_text(IN_A_FILE)
    monkeypatch.setenv("SHALE_SECRETS_DIR", str(folder))
    monkeypatch.setenv("SHALE_STORE__ENDPOINT", f"http://user:{IN_A_URL}@127.0.0.1:1")
    (tmp_path / "db.log").write_text("\n".join(LINES))
    # A damage whose message would show a key, and a name that holds a secret.
    (tmp_path / "db" / f"note-{IN_A_FILE}").write_text(VALUE)
    return where


def unpacked(file: Path) -> dict[str, str]:
    with tarfile.open(file) as tar:
        return {
            member.name.partition("/")[2]: found.read().decode()
            for member in tar.getmembers()
            if (found := tar.extractfile(member)) is not None
        }


def test_no_secret_and_no_value_is_in_it(golden: Golden, planted: str, daemon: str, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    log = str(tmp_path / "db.log")
    golden.check(
        "debug-bundle",
        "debug", "bundle", "-f", str(file), "--daemon", daemon, "--log", log, "-u", planted,
    )  # fmt: skip
    files = unpacked(file)
    hidden = [*SECRETS.values(), IN_A_FILE, KEY_IN_FILE, IN_A_URL, *BY_ITS_LOOKS, KEY, VALUE]
    for name, text in files.items():
        for secret in hidden:
            assert secret not in name + text, f"{secret} in {name}"
    assert {"bundle.json", "verify.json", "listing.jsonl", "settings/writer.json", "daemons/0/metrics.txt"} <= set(
        files
    )
    assert "shale_up 1" in files["daemons/0/metrics.txt"]
    assert json.loads(files["verify.json"])["is_sound"]
    newest = json.loads(files[max(name for name in files if name.startswith("manifests/"))])
    l0 = newest["value"]["tree"]["l0"]
    assert {view["sst"]["info"]["first_entry"]["place"] for view in l0} == {0, 1}
    assert json.loads(files["bundle.json"])["left_out"] == []
    assert "AWS_SECRET_ACCESS_KEY" in json.loads(files["bundle.json"])["variables"]
    (line,) = [json.loads(line) for line in files[next(name for name in files if "db.log" in name)].splitlines()[:1]]
    assert (line["event"], line["seq"]) == ("put", 7)


@pytest.mark.slow
def test_the_archive_goes_to_stdout(planted: str, tmp_path: Path) -> None:
    arguments = ["debug", "bundle", "--no-verify", "-f", "-", "--log", "absent.log", "-u", planted]
    command = [sys.executable, "-m", "shale_cli", *arguments]
    ended = subprocess.run(
        command, capture_output=True, check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": PYTHONPATH}
    )
    file = tmp_path / "stdout.tar.gz"
    file.write_bytes(ended.stdout)
    assert "bundle.json" in unpacked(file)
    assert b"left out: logs/absent.log: " in ended.stderr
    assert sorted(path.name for path in tmp_path.iterdir() if ".tar.gz" in path.name) == ["stdout.tar.gz"]


def test_keys_stay_if_they_are_asked_for(golden: Golden, planted: str, tmp_path: Path) -> None:
    from base64 import b64encode

    file = tmp_path / "bundle.tar.gz"
    golden.run("debug", "bundle", "--keys", "--no-verify", "-f", str(file), "-u", planted)
    files = unpacked(file)
    text = "".join(files.values())
    assert b64encode(KEY.encode()).decode() in text
    assert "verify.json" not in files
    for secret in (*SECRETS.values(), IN_A_FILE, IN_A_URL, VALUE):
        assert secret not in text


def test_what_cannot_be_had_is_named(golden: Golden, planted: str, tmp_path: Path) -> None:
    newest = max((tmp_path / "db/manifest").iterdir())
    newest.write_bytes(b"\x00\x02 nonsense")
    file = tmp_path / "bundle.tar.gz"
    golden.run(
        "debug", "bundle", "-f", str(file), "--daemon", "http://127.0.0.1:1", "--log", str(tmp_path / "none"),
        "-u", planted,
    )  # fmt: skip
    files = unpacked(file)
    left_out = {each["what"] for each in json.loads(files["bundle.json"])["left_out"]}
    assert left_out >= {"daemons/0/statusz.txt", "logs/none", f"manifests/{newest.stem}.json"}
    assert {each["code"] for each in json.loads(files["verify.json"])["findings"]} == {"undecodable"}
    assert "message" not in files["verify.json"]
    before = file.read_bytes()
    golden.run("debug", "bundle", "-f", str(file), "-u", planted, code=2)
    assert file.read_bytes() == before
    assert not list(tmp_path.glob("*.part"))


def test_a_log_in_a_store_of_its_own_is_listed_too(golden: Golden, tmp_path: Path) -> None:
    where, logs = f"file://{tmp_path}/db", f"file://{tmp_path}/logs"
    golden.run("--wal-store", logs, "kv", "put", KEY, VALUE, "-u", where)
    for name, kept in (("one", logs), ("two", None)):
        file = tmp_path / f"{name}.tar.gz"
        golden.run(*(("--wal-store", kept) if kept else ()), "debug", "bundle", "-f", str(file), "-u", where)
        files = unpacked(file)
        assert "/wal/" not in files["listing.jsonl"]
        assert json.loads(files["bundle.json"])["wal_store"] == kept
        if kept:
            keys = [json.loads(line)["key"] for line in files["listing-wal.jsonl"].splitlines()]
            on_disk = (path.relative_to(tmp_path / "logs") for path in (tmp_path / "logs").rglob("*.sst"))
            assert keys == sorted(map(str, on_disk))
            assert keys
            assert json.loads(files["verify.json"])["checked"]["wal_files"] == len(keys)
        else:
            assert "listing-wal.jsonl" not in files


def test_keys_may_stay_and_values_may_not(golden: Golden, planted: str, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    golden.run(
        "debug", "bundle", "--keys", "--no-verify", "--log", str(tmp_path / "db.log"), "-f", str(file), "-u", planted
    )
    text = "".join(unpacked(file).values())
    assert f"key={KEY}" in text
    assert VALUE not in text
