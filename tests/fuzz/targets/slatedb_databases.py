"""Databases with one damaged object, read by Shale and by the slatedb package.

Where both answer with rows, these are equal; or verify reports the damage, and Shale's rows are those of the intact
database, or ``READ_OTHERWISE`` has the kind of damage.  Shale refuses more: it checks filters, stats, and what a
manifest says of an SST.  It reads what the package refuses only where verify reports the damage, or the rows are those
of the intact database.
"""

import shutil
from pathlib import Path
from typing import Any

from shale.errors import ShaleError
from shale.sst.verify.codes import Code
from tests.fuzz import loop
from tests.fuzz.folder import folder
from tests.fuzz.target import Difference, Target
from tests.fuzz.targets import databases
from tests.interop.slatedb_process import PackageRows, package_process

_CASES = ("tiny_l0", "many_l0", "compressed_zstd", "wal_multi_block", "wal_only", "small_filter")


def _place() -> Path:
    return folder() / "slatedb"


def _theirs(objects: dict[str, bytes]) -> PackageRows:
    shutil.rmtree(_place(), ignore_errors=True)
    for key, data in objects.items():
        path = _place() / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return package_process().rows(_place())


def _database(data: bytes) -> None:
    found = databases.case_of(data)
    if found is None or found[0] not in _CASES:
        return
    case, changes = found
    objects = databases.with_changes(case, changes)
    theirs = _theirs(objects)
    try:
        ours = [tuple(row) for row in loop.run(databases.rows_of(objects))]
    except ShaleError:
        return
    if theirs == [_as_theirs(row) for row in ours]:
        return
    is_intact = ours == [tuple(row) for row in databases.intact_rows(case)]
    if theirs is None and is_intact:
        return
    report = loop.run(databases.report_on(objects))
    if report.is_sound and report.is_complete:
        whose = "refuses" if theirs is None else "reads otherwise"
        raise Difference(f"rows that the package {whose} are read silently: {len(ours)}, in {case}")
    codes = {finding.code for finding in report.findings}
    if theirs is not None and not is_intact and not codes & READ_OTHERWISE.keys():
        raise Difference(f"rows differ from those of the package: {len(ours)} and {len(theirs)}, in {case}")


READ_OTHERWISE = {
    Code.ROW_ORDER: "a merge of rows that are not in order gives any of them",
    Code.ROW_OFFSETS: "the package searches blocks by their offsets, where Shale walks",
    Code.SEQ_ABOVE_MANIFEST: "a reader of the package shows rows above last_l0_seq, which its writer and Shale do not",
}
"""Damage that verify reports, and that the package reads otherwise, each with the reason."""


def _as_theirs(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row as the package shows it: without a time, its time is 0."""
    key, value, seq, create_ts, expire_ts = row
    return key, value, seq, create_ts or 0, expire_ts


def targets() -> list[Target]:
    reads = ("shale.sst.reads.metadata", "shale.sst.reads.data_blocks")
    modules = ("shale.engine.reader.state", "shale.engine.wal.replay", *reads)
    return [
        Target(
            "database and slatedb",
            _database,
            lambda: databases.seeds(_CASES),
            (),
            modules,
            databases.mutate_database,
            structured=1.0,
            weight=2,
        )
    ]
