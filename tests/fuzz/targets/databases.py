"""Whole files of a database, and whole databases of which one object is damaged.

A damaged database answers with the rows of the intact one, or with an error, or ``shale verify`` reports the damage.
``SILENT`` names what verify cannot know.
"""

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any
from zlib import crc32

import msgpack

from shale.admin.verify.database import VerifyOptions, VerifyTarget, verify_database
from shale.engine.db_reader import DbReader
from shale.engine.wal.file import decode_wal_file
from shale.env import Env, InlineCpu, SystemClock
from shale.errors import CorruptionError, ShaleError
from shale.format.blocks.decoder import decode_blocks
from shale.format.blocks.plain import decode_block_plain
from shale.format.manifest import decode_manifest, encode_manifest
from shale.format.sst.info import TailTooShort, decode_trailer
from shale.kernels.rows import entries_from_rows
from shale.sst.meta import decode_meta, meta_span
from shale.sst.verify.sst import VerifyDepth, verify_sst
from shale.sst.verify.wal_file import verify_wal_file
from shale.store.memory import MemoryStore
from shale.types import Manifest, Sst, SstView, Ulid
from tests.fuzz import loop, samples
from tests.fuzz.flat_mutation import mutate_flat
from tests.fuzz.mutation import mutate_bytes
from tests.fuzz.oracle import PATH, require_place
from tests.fuzz.sst_mutation import mutate_sst
from tests.fuzz.target import Difference, Target
from tests.fuzz.targets.metadata import manifest_root
from tests.golden_files import FIXTURES
from tests.guarded import Side, guarded_numpy
from tests.interop.read.databases import concatenate
from tests.interop.sst_sections import open_sst

_CASES = (
    "tiny_l0",
    "many_l0",
    "merge_operands",
    "segments",
    "compressed_zstd",
    "wal_multi_block",
    "wal_only",
    "small_filter",
)
_GUARDED_ONE_OF = 16
"""Inputs, of which one runs in guarded memory: costs a fifth of the speed."""
_ENV = Env(SystemClock(), random.Random(1), InlineCpu())


def _sst(data: bytes) -> None:
    """Open an SST as the manifest names it, read all rows, and verify it."""
    try:
        info, version = require_place(
            lambda: decode_trailer(data, object_size=len(data), path=PATH), offset_max=len(data)
        )
    except TailTooShort as error:
        raise Difference("the tail of a whole object is too short") from error
    sst = Sst(id=Ulid(1), info=info, format_version=version)
    loop.run(_verified(data, sst))
    start, end = require_place(lambda: meta_span(info, PATH))
    meta = require_place(lambda: decode_meta(info, data[start:end], start, path=PATH), offset_max=1 << 63)
    rows = require_place(
        lambda: decode_blocks(
            data[: info.data_len], meta.index.offsets, version=version, compression=info.compression, path=PATH
        ),
        offset_max=len(data),
    )
    for entry in entries_from_rows(rows)[:50]:
        meta.filters.may_contain_key(entry.key)
        meta.index.block_range_for_key(entry.key)


async def _verified(data: bytes, sst: Sst) -> None:
    store = MemoryStore()
    await store.put(PATH, data)
    for depth in VerifyDepth:
        await verify_sst(store, PATH, sst, _ENV, depth=depth)


def _wal(data: bytes) -> None:
    verify_wal_file(memoryview(data), PATH)
    require_place(lambda: loop.run(decode_wal_file(memoryview(data), PATH, _ENV)), offset_max=len(data))


@cache
def _objects(case: str) -> dict[str, bytes]:
    folder = FIXTURES / case
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted((folder / "db").rglob("*.*"))
        if path.is_file()
    }


def case_of(data: bytes) -> tuple[str, dict[str, bytes | None]] | None:
    """Return the database of an input, and the objects that differ; ``None`` if the input is not one."""
    try:
        match msgpack.unpackb(data):
            case [str(case), dict(changes)] if case in _CASES and all(
                isinstance(key, str) and isinstance(value, bytes | None) for key, value in changes.items()
            ):
                return case, changes
    except (ValueError, msgpack.UnpackException):
        pass
    return None


def with_changes(case: str, changes: dict[str, bytes | None]) -> dict[str, bytes]:
    """Return the objects of a damaged database."""
    intact = _objects(case)
    return {key: value for key in intact if (value := changes.get(key, intact[key])) is not None}


async def rows_of(objects: dict[str, bytes]) -> list[Any]:
    """Return the rows of a reader; raises what the reader raises."""
    store = await _store_of(objects)
    async with DbReader.open("db", store=store, follow_latest=False, merge_operator=concatenate) as reader:
        return [row async for row in reader.scan()]


async def _store_of(objects: dict[str, bytes]) -> MemoryStore:
    store = MemoryStore()
    for key, data in objects.items():
        await store.put(key, data)
    return store


@cache
def intact_rows(case: str) -> list[Any]:
    """Return the rows of an intact database."""
    return loop.run(rows_of(_objects(case)))


def _database(data: bytes) -> None:
    found = case_of(data)
    if found is None:
        return
    case, changes = found
    intact, objects = _objects(case), with_changes(case, changes)
    expected = intact_rows(case)
    with _guards(data):
        rows = loop.run(rows_of(objects))
    if rows != expected:
        report = loop.run(report_on(objects))
        if report.is_sound and report.is_complete:
            what = _silent_change(intact, objects)
            if what not in SILENT:
                raise Difference(
                    f"{what} changes rows silently: {len(rows)} rows instead of {len(expected)}, in {case}"
                )


def _guards(data: bytes) -> AbstractContextManager[None]:
    """Put arrays between guard pages for some inputs, always the same: it takes four times as long."""
    number = crc32(data)
    return nullcontext() if number % _GUARDED_ONE_OF else guarded_numpy(Side(number // _GUARDED_ONE_OF & 1))


async def report_on(objects: dict[str, bytes]) -> Any:
    """Return the report of a deep verification."""
    target = VerifyTarget(store=await _store_of(objects), wal_store=None, root="db", env=_ENV)
    return await verify_database(target, VerifyOptions(depth=VerifyDepth.DEEP))


_REWRITTEN = "rows that are written anew"
_EARLIER = "an earlier state"
SILENT = {
    _EARLIER: "the newest manifest and the WAL files after it are gone: what is left was the database once",
    _REWRITTEN: "values, times and sequence numbers may be any; checksums, order, index, filters and stats fit them",
}
"""What changes rows without a finding of verify, each with the reason."""


def _rows_in(data: bytes) -> object:
    """Return the rows of an SST or WAL file; of one that cannot be read, its bytes."""
    try:
        sst = open_sst(data, PATH)
        return [row for image in sst.blocks() for row in decode_block_plain(image, sst.version)]
    except ShaleError:
        return data


def _silent_change(intact: dict[str, bytes], objects: dict[str, bytes]) -> str:
    """Say what is damaged: the fields of the newest manifest that differ, or the kind of the object."""
    changed = [key for key in intact if objects.get(key) != intact[key]]
    files = [key for key in changed if key.endswith(".sst") and key in objects]
    if any(_rows_in(intact[key]) != _rows_in(objects[key]) for key in files):
        return _REWRITTEN
    newest = max(key for key in intact if key.endswith(".manifest"))
    if newest not in objects and _wal_ends_early(intact, objects):
        return _EARLIER
    if changed != [newest] or newest not in objects:
        kinds = sorted({key.split("/")[1] + ("" if key in objects else " gone") for key in changed})
        return "damage of " + ", ".join(kinds)
    before, after = decode_manifest(intact[newest]), decode_manifest(objects[newest])
    fields = [name for name in Manifest.__slots__ if getattr(before, name) != getattr(after, name)]
    return "manifest " + ", ".join(fields)


def _wal_ends_early(intact: dict[str, bytes], objects: dict[str, bytes]) -> bool:
    """Return whether WAL files are gone, and none that follows them is left."""
    files = sorted(key for key in intact if key.startswith("db/wal/"))
    gone = [key for key in files if key not in objects]
    return bool(gone) and gone == files[-len(gone) :]


def mutate_database(rng: random.Random, data: bytes) -> bytes:
    """Damage one object by its structure; what the manifest says of an SST follows the SST."""
    found = case_of(data)
    if found is None:
        return data
    case, changes = found
    objects = {**_objects(case), **changes}
    newest = max(key for key in objects if key.endswith(".manifest"))
    key = rng.choice((newest, newest, rng.choice(sorted(objects)), rng.choice(sorted(objects))))
    old = objects[key]
    if old is None or rng.random() < 0.05:
        changes[key] = None
    elif key.endswith(".manifest"):
        root = manifest_root(old[:2])
        changes[key] = old[:2] + mutate_flat(rng, old[2:], root) if rng.random() < 0.9 else mutate_bytes(rng, old)
    elif key.endswith(".sst") and old:
        changes[key] = new = mutate_sst(rng, old)
        manifest = objects[newest]
        if "/compacted/" in key and manifest is not None and rng.random() < 0.7:
            changes[newest] = _with_info_of(manifest, key, new)
    else:
        changes[key] = mutate_bytes(rng, old)
    return bytes(msgpack.packb([case, changes]) or b"")


def _with_info_of(manifest: bytes, key: str, data: bytes) -> bytes:
    """Return the manifest with the footer that an SST has now."""
    from dataclasses import replace

    try:
        found = decode_manifest(manifest)
        info, version = decode_trailer(data, object_size=len(data))
    except ShaleError:
        return manifest
    sst = Sst(id=Ulid.parse(key.rpartition("/")[2].removesuffix(".sst")) or Ulid(0), info=info, format_version=version)

    def view(each: SstView) -> SstView:
        return replace(each, sst=sst) if each.sst.id == sst.id else each

    def tree(each: Any) -> Any:
        runs = tuple(replace(run, ssts=tuple(map(view, run.ssts))) for run in each.compacted)
        return replace(each, l0=tuple(map(view, each.l0)), compacted=runs)

    segments = tuple(replace(each, tree=tree(each.tree)) for each in found.segments)
    return encode_manifest(replace(found, tree=tree(found.tree), segments=segments))


def seeds(cases: Sequence[str] = _CASES) -> list[bytes]:
    """Return inputs of intact databases."""
    return [bytes(msgpack.packb([case, {}]) or b"") for case in cases]


def targets() -> list[Target]:
    corrupt = (CorruptionError,)
    files = ("shale.sst.meta", "shale.format.blocks.decoder", "shale.sst.verify.sst", "shale.sst.verify.rows_check")
    wal = ("shale.engine.wal.file", "shale.sst.verify.wal_file")
    database = (
        "shale.engine.wal.replay",
        "shale.engine.reader.state",
        "shale.admin.verify.rules",
        "shale.sst.reads.metadata",
        "shale.sst.reads.data_blocks",
        "shale.sst.spans.stored_span",
    )
    return [
        Target("sst file", _sst, samples.ssts, corrupt, files, mutate_sst, weight=3),
        Target("wal file", _wal, samples.wal_files, corrupt, wal, mutate_sst, weight=2),
        Target("database", _database, seeds, (ShaleError,), database, mutate_database, structured=1.0, weight=6),
    ]
