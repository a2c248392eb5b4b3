"""An encrypted database with all daemons: no plaintext in the store, on disk or in a log."""

import asyncio
from base64 import b64encode
from pathlib import Path

import pytest

import shale
from tests import cas_selection
from tests.integration.daemons.daemon_process import QUICK_COMPACTION, metric, running
from tests.paths import REPOSITORY
from tests.processes.forks import run

KEY = bytes(range(32)).hex()
SECRET = b"only the owner reads this"
L0S = 8


def readable(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and SECRET in path.read_bytes()]


async def fill(url: str, keys: Path) -> None:
    async with shale.Db.open(url, block_transformer=shale.AesGcm.from_file(keys)) as db:
        for number in range(L0S):
            for key in range(20):
                await db.put(b"key%d-%d" % (key % 4, key % 5), SECRET + b"%d" % number)
            await db.flush("memtable")


@pytest.mark.slow
def test_writer_compactor_reader_and_command(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"k1 {KEY}\n")
    url = f"file://{tmp_path}/store/orders"
    common = ("--url", url, "--set", f"encryption.key_file={keys}")
    disk = ("--set", f"disk_cache.directory={tmp_path}/disk")
    logs = [tmp_path / name for name in ("writer.log", "compactor.log", "reader.log")]
    asyncio.run(fill(url, keys))
    with running("shale_writer", *common, *disk, "--port", "0", log=logs[0]) as writer:
        port = writer.port("port")
        assert writer.request("PUT", "/v1/kv/new", port=port, body=SECRET)[0] < 300
        status, body, _ = writer.request("GET", "/v1/kv/key1-1", port=port)
        assert (status, body) == (200, SECRET + b"%d" % (L0S - 1))
        with running("shale_compactor", *common, *QUICK_COMPACTION, log=logs[1]) as compactor:
            compactor.wait_for("compaction.committed")
            assert compactor.stop() == 0
        with running("shale_reader", *common, *disk, "--port", "0", log=logs[2]) as reader:
            status, body, _ = reader.request("GET", "/v1/kv/key2-4", port=reader.port("port"))
            assert (status, body) == (200, SECRET + b"%d" % (L0S - 1))
            page = reader.get("/metrics", port=reader.port("admin_port"))[1]
            assert metric(page, "slatedb_object_store_cache_part_accesses_total") > 0
            assert reader.stop() == 0
        assert writer.stop() == 0
    command = ("shale_cli", "kv", "get", "key0-0", "--url", url)
    env = {"PYTHONPATH": f"{REPOSITORY}/shared:{REPOSITORY}/services", "PATH": "", "HOME": str(tmp_path)}
    env |= cas_selection.environment()
    told = run(*command, env={**env, "SHALE_ENCRYPTION__KEY_FILE": str(keys)}, folder=tmp_path)
    assert b64encode(SECRET[:24]) in told.stdout, told.stderr
    untold = run(*command, env=env, folder=tmp_path)
    assert untold.returncode != 0
    assert b".sst" in untold.stderr
    assert list((tmp_path / "disk").rglob("*-0"))
    assert readable(tmp_path / "store") + readable(tmp_path / "disk") == []
    assert not [log for log in logs if KEY in log.read_text()]
