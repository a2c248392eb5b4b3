"""Every golden database decodes to the values that SlateDB reported when it was written."""

import json
from pathlib import Path
from typing import Any

import pytest

from shale.format.compactions import decode_compactions
from shale.types import FLAG_MERGE, FLAG_TOMBSTONE, Entry
from tests.golden_files import FIXTURES
from tests.interop import contents_json
from tests.interop.database_files import DatabaseFiles, check_bytes


def databases() -> list[Any]:
    """Return every database of every case, with its recorded values."""
    found = []
    for contents in sorted(FIXTURES.glob("*/contents.json")):
        case = json.loads(contents.read_text())
        for root, expected in case.get("dbs", {}).items():
            wal_store = contents.parent / "walstore"
            files = DatabaseFiles(contents.parent, root, wal_store if wal_store.exists() else None)
            found.append(pytest.param(files, expected, id=f"{contents.parent.name}/{root}"))
    return found


DATABASES = databases()


@pytest.mark.parametrize(("files", "expected"), DATABASES)
def test_manifest(files: DatabaseFiles, expected: dict[str, Any]) -> None:
    assert sorted(files.manifests()) == expected["manifest_ids"]
    theirs = {**expected["manifest"]}
    theirs.pop("last_compacted_l0_sst_id")
    assert contents_json.manifest(max(files.manifests()), files.latest()) == theirs


@pytest.mark.parametrize(("files", "expected"), DATABASES)
def test_compactions(files: DatabaseFiles, expected: dict[str, Any]) -> None:
    ours = [contents_json.compactions(id_, value) for id_, value in sorted(files.decoded_compactions().items())]
    assert ours == expected.get("compactions", [])


@pytest.mark.parametrize(("files", "expected"), DATABASES)
def test_wal(files: DatabaseFiles, expected: dict[str, Any]) -> None:
    ours = {str(id_): [wal_row(entry) for entry in files.wal_entries(id_)] for id_ in files.wal_files()}
    if "wal" in expected:  # two cases did not record it
        assert ours == expected["wal"]


@pytest.mark.parametrize(("files", "expected"), DATABASES)
def test_live_rows(files: DatabaseFiles, expected: dict[str, Any]) -> None:
    ours = [
        [contents_json.data(row.key), contents_json.data(row.value), row.seq, row.create_ts, row.expire_ts]
        for row in files.rows()
    ]
    assert ours == expected["live"]


@pytest.mark.parametrize(("files", "expected"), DATABASES)
def test_bytes(files: DatabaseFiles, expected: dict[str, Any]) -> None:
    assert check_bytes(files) >= 2 * len(expected["manifest_ids"])


def test_the_context_of_a_running_compaction() -> None:
    case = FIXTURES / "compactions_subcompactions"
    contents = json.loads((case / "contents.json").read_text())
    decoded = {int(path.stem): decode_compactions(path.read_bytes()) for path in sorted(case.rglob("*.compactions"))}
    assert [contents_json.compactions(id_, value) for id_, value in decoded.items()] == contents["compactions"]
    for id_, expected in contents["expected_ctx"].items():
        ctx = decoded[int(id_)].entries[-1].ctx
        assert ctx is not None
        assert ctx.retention_min_seq == expected["retention_min_seq"]
        ours = [
            {
                "start": contents_json.data(each.range.start.key),
                "start_type": each.range.start.kind,
                "end": contents_json.data(each.range.end.key),
                "end_type": each.range.end.kind,
                "output_ssts": [str(sst.id) for sst in each.output_ssts],
            }
            for each in ctx.subcompactions
        ]
        assert ours == expected["subcompactions"]


def wal_row(entry: Entry) -> list[Any]:
    kind = "tombstone" if entry.flags & FLAG_TOMBSTONE else "merge" if entry.flags & FLAG_MERGE else "value"
    value = None if kind == "tombstone" else contents_json.data(entry.value)
    return [kind, contents_json.data(entry.key), value, entry.seq, entry.create_ts, entry.expire_ts or None]


def test_no_case_is_forgotten() -> None:
    assert len(DATABASES) > len(list(Path(FIXTURES).glob("*/contents.json"))) - 2
