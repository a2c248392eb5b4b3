"""Nothing is found in what SlateDB 0.17 wrote: neither in its SSTs nor in its WAL files."""

import json
from pathlib import Path

import anyio
import pytest

from shale.admin.verify.inventory import read_inventory
from shale.admin.verify.parts import plan_parts, verify_part, wal_disorder
from shale.env import Env
from shale.format.manifest import decode_manifest
from shale.format.names import parse_manifest_key
from shale.protocol.wal_store import WalStore
from shale.sst.paths import SstPaths
from shale.sst.verify.sst import verify_sst
from shale.sst.verify.wal_file import verify_wal_file
from shale.store.local import LocalStore
from tests.interop.files import FIXTURES, golden, label

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
    """Clones, segments, logs in a store of their own and logs that were switched off among them."""

    async def main() -> None:
        store, env = LocalStore(FIXTURES / case), Env.system()
        wal_store = LocalStore(FIXTURES / case / "walstore") if (FIXTURES / case / "walstore").exists() else None
        for root in databases(case):
            inventory = await read_inventory(store, wal_store, root, env)
            wal = WalStore(wal_store or store, root, env)
            parts = plan_parts(inventory, part_bytes=1 << 20, items_max=4)
            results = [await verify_part(part, store, wal, env) for part in parts]
            found = [*inventory.findings, *(finding for result in results for finding in result.findings)]
            found += wal_disorder((seqs for result in results for seqs in result.wal), wal)
            assert found == [], root

    anyio.run(main)
