"""Nothing is found in what SlateDB 0.17 wrote: neither in its SSTs nor in its WAL files."""

import json
from pathlib import Path

import anyio
import pytest

from shale.env import Env
from shale.format.manifest import decode_manifest
from shale.format.names import parse_manifest_key
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
