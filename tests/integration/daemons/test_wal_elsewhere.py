"""A database with segments and a separate WAL store, with every process that reads or writes the WAL."""

import asyncio
import json
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import slatedb.uniffi as wheel

from tests import cas_selection
from tests.integration.daemons.daemon_process import running
from tests.interop.slatedb_databases import FirstBytes, open_folder
from tests.paths import REPOSITORY
from tests.processes.forks import run

if TYPE_CHECKING:
    import subprocess

ROWS = {f"{shop}-{number}": f"{shop} {number}" for shop in ("aa", "bb") for number in range(5)}


async def read_with_the_wheel(main: Path, wal: Path) -> dict[str, str]:
    builder = wheel.DbReaderBuilder("orders", open_folder(main))
    builder.with_wal_object_store(open_folder(wal))
    builder.with_segment_extractor(FirstBytes("shop", 2))
    reader = await builder.build()
    found: dict[str, str] = {}
    for key in ROWS:
        if (value := await reader.get(key.encode())) is not None:
            found[key] = value.decode()
    await reader.shutdown()
    return found


def command(*args: str, home: Path, env: dict[str, str]) -> "subprocess.CompletedProcess[bytes]":
    path = {"PYTHONPATH": f"{REPOSITORY}/shared:{REPOSITORY}/services", "PATH": "", "HOME": str(home)}
    return run("shale_cli", *args, env={**path, **cas_selection.environment(), **env}, folder=home)


@pytest.mark.slow
def test_all_daemons_read_the_rows_of_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("CLOUD_PROVIDER", "LOCAL_PATH"):  # what ``open_folder`` sets is taken back
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    main, wal = tmp_path / "main", tmp_path / "wal"
    for directory in (main, wal):
        directory.mkdir()
    env = {
        "SHALE_URL": f"file://{main}/orders",
        "SHALE_WAL_STORE": f"file://{wal}",
        "SHALE_SEGMENT_EXTRACTOR__NAME": "shop",
        "SHALE_SEGMENT_EXTRACTOR__PREFIX_BYTES": "2",
    }
    with running("shale_writer", "--port", "0", log=tmp_path / "writer.log", env=env) as writer:
        port, admin_port = writer.port("port"), writer.port("admin_port")
        for number, (key, value) in enumerate(ROWS.items()):
            assert writer.request("PUT", f"/v1/kv/{key}", port=port, body=value.encode())[0] < 300
            if number == 2:
                assert writer.request("POST", "/v1/admin/flush", port=admin_port)[0] == 204
        assert writer.request("PUT", "/v1/kv/c", port=port, body=b"in no segment")[0] == 400
        with running("shale_reader", "--port", "0", log=tmp_path / "reader.log", env=env) as reader:
            for key, value in ROWS.items():
                assert reader.get(f"/v1/kv/{key}", port=reader.port("port")) == (200, value)
            assert reader.stop() == 0
        with running("shale_gc", log=tmp_path / "gc.log", env=env) as collector:
            collector.wait_for("daemon.ready")
            assert collector.stop() == 0
        assert writer.stop() == 0
    assert not list(main.rglob("wal/*.sst"))
    assert list((wal / "orders" / "wal").glob("*.sst"))

    if cas_selection.selected() is None:  # SlateDB refuses a database with two-phase creates
        assert asyncio.run(read_with_the_wheel(main, wal)) == ROWS
    scanned = command("kv", "scan", home=tmp_path, env=env)
    keys = [json.loads(line)["key_b64"] for line in scanned.stdout.splitlines()]
    assert keys == [b64encode(key.encode()).decode() for key in ROWS], scanned.stderr
    listed = json.loads(command("wal", "list", home=tmp_path, env=env).stdout)
    assert len(listed["files"]) == len(list((wal / "orders" / "wal").glob("*.sst")))
    alone = {"SHALE_URL": env["SHALE_URL"]}
    named = command("kv", "get", "bb-4", "--raw", "--wal-store", f"file://{wal}", home=tmp_path, env=alone)
    assert named.stdout == b"bb 4", named.stderr
    assert command("kv", "put", "aa-new", "1", home=tmp_path, env=alone).returncode != 0
    assert command("kv", "put", "aa-new", "1", home=tmp_path, env=env).returncode == 0
    told = command("kv", "get", "aa-new", "--raw", home=tmp_path, env=env)
    assert told.stdout == b"1", told.stderr
