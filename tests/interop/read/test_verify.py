"""Verification finds no damage in SSTs and WAL files that SlateDB 0.17 wrote."""

import asyncio
import json
from pathlib import Path

import anyio
import pytest

from shale.admin.verify.database import VerifyOptions, VerifyTarget, verify_database
from shale.admin.verify.report import VerifyReport
from shale.env import Env
from shale.format.manifest import decode_manifest
from shale.format.names import parse_manifest_key
from shale.sst.paths import SstPaths
from shale.sst.verify.codes import Code, Severity
from shale.sst.verify.sst import VerifyDepth, verify_sst
from shale.sst.verify.wal_file import verify_wal_file
from shale.store.local_store.adapter import LocalStore
from tests.golden_files import FIXTURES, golden, label
from tests.interop.compaction.harness import RUST_COMPACTS
from tests.interop.lifecycle.cloning import ALL, OURS, THEIRS, clone, fill, split
from tests.interop.slatedb_databases import Shape, flush, open_folder, opened, put_all

CASES = sorted({path.parent.name for path in FIXTURES.glob("*/contents.json")})


def databases(case: str) -> list[str]:
    return sorted(json.loads((FIXTURES / case / "contents.json").read_text()).get("dbs", {}))


@pytest.mark.parametrize("case", CASES)
def test_ssts_of_every_manifest(case: str) -> None:
    async def main() -> None:
        store, env = LocalStore(FIXTURES / case), Env.system()
        for root in databases(case):
            for path in sorted((FIXTURES / case / root / "manifest").glob("*.manifest")):
                assert parse_manifest_key(root, f"{root}/manifest/{path.name}") is not None
                manifest = decode_manifest(path.read_bytes())
                paths = SstPaths.of(root, manifest)
                for sst in manifest.ssts().values():
                    if (FIXTURES / case / paths.key(sst.id)).exists():  # the collector may have taken it
                        verdict = await verify_sst(store, paths.key(sst.id), sst, env)
                        assert verdict.findings == ()
                        assert verdict.totals.rows

    anyio.run(main)


@pytest.mark.parametrize("path", [path for path in golden("*.sst") if path.parent.name == "wal"], ids=label)
def test_wal_files(path: Path) -> None:
    verdict = verify_wal_file(memoryview(path.read_bytes()), str(path))
    assert verdict.findings == ()


@pytest.mark.parametrize("case", CASES)
def test_whole_databases(case: str) -> None:
    """The databases include clones, segments, WALs in a separate store and disabled WALs."""

    async def main() -> None:
        store = LocalStore(FIXTURES / case)
        wal_store = LocalStore(FIXTURES / case / "walstore") if (FIXTURES / case / "walstore").exists() else None
        for root in databases(case):
            for depth in VerifyDepth:
                report = await verified(store, root, wal_store=wal_store, depth=depth)
                assert report.findings == (), root
                assert report.is_complete

    anyio.run(main)


async def verified(
    store: LocalStore, root: str, *, wal_store: LocalStore | None = None, depth: VerifyDepth = VerifyDepth.DEEP
) -> VerifyReport:
    checked = VerifyTarget(store=store, wal_store=wal_store, root=root, env=Env.system())
    return await verify_database(checked, VerifyOptions(depth=depth))


def test_clones_of_slatedb(tmp_path: Path) -> None:
    """The clones are nested, projected and united; known defects of SlateDB's unions are remarks, not errors."""

    async def scenario() -> None:
        await fill(tmp_path, "p", ALL, by=THEIRS)
        await clone(tmp_path, "middle", ("p", None, None), by=THEIRS)
        await clone(tmp_path, "nested", ("middle", None, None), by=THEIRS)
        await split(tmp_path, writes=THEIRS, by=THEIRS)
        await clone(tmp_path, "ours", ("l", None, None), ("r", None, None), by=OURS)
        await clone(tmp_path, "theirs", ("l", None, None), ("r", None, None), by=THEIRS)
        store = LocalStore(tmp_path)
        for root in ("p", "middle", "nested", "l", "r", "ours"):
            report = await verified(store, root)
            assert report.findings == (), root
            assert bool(report.borrowed) == (root != "p")
        report = await verified(store, "theirs")
        assert {(finding.code, finding.severity) for finding in report.findings} == {
            (Code.L0_DUPLICATE, Severity.WARNING)
        }

    asyncio.run(scenario())


def test_beside_slatedb_at_work(tmp_path: Path) -> None:
    """SlateDB's writer, compactor and collector run during the verification, which reports nothing."""
    settings = Shape(
        settings={
            "flush_interval": "5ms",
            "l0_sst_size_bytes": 4096,
            "manifest_poll_interval": "20ms",
            "compactor_options": RUST_COMPACTS,
        }
    )

    async def scenario() -> None:
        store = LocalStore(tmp_path)
        async with opened(open_folder(tmp_path), "db", settings) as db:
            for turn in range(8):
                rows = [(b"%d-%03d" % (turn, number), b"v" * 60) for number in range(60)]
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(put_all(db, rows))
                    looking = tasks.create_task(verified(store, "db", depth=list(VerifyDepth)[turn % 3]))
                assert looking.result().findings == ()
                await flush(db)
        report = await verified(store, "db")
        assert report.findings == ()
        assert report.rows

    asyncio.run(scenario())
