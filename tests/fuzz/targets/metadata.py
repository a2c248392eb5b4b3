"""Manifests, compactions files and the other small objects of a database."""

import asyncio
import json
import random
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

import orjson

from shale.backup.backup_store import BackupStore
from shale.backup.document import decode_backup, encode_backup, seal
from shale.backup.names import journal_key, plan_key
from shale.compaction.records import decode_record, encode_record
from shale.engine.wal.feed.offset import FeedOffset, parse_start
from shale.env import Env, InlineCpu, SystemClock
from shale.errors import CorruptionError, InvalidRequestError
from shale.format.boundary import decode_boundary
from shale.format.compactions import decode_compactions, encode_compactions
from shale.format.exclusive import open_exclusive
from shale.format.manifest import decode_by_columns, decode_manifest, decode_plain, encode_manifest, is_lossless
from shale.format.sequence_tracker import SequenceTracker
from shale.gc.plan import GcPlan, PlannedObject, Task
from shale.protocol.markers import DestroyedMark, decode_destroyed_mark, encode_destroyed_mark
from shale.protocol.visible_range import decode_visible_range, encode_visible_range
from shale.sst.disk_part import PartRange, head_size, read_part
from shale.store.memory import MemoryStore
from shale.types import CasMode, Checkpoint, Epoch, ExclusiveModes, KeyRange, Manifest, ManifestId, Ulid
from shale.types.writer_sign import WriterIdentity, challenged_epoch, embedded_compactor, writer_status
from tests.fuzz import documents, samples
from tests.fuzz.flat_mutation import mutate_flat
from tests.fuzz.mutation import any_of, mutate_bytes, words_mutation
from tests.fuzz.oracle import PATH, attempt, require_equal, require_place
from tests.fuzz.target import Mutation, Target

_DEEP = b"[" * 100_000
JSON_WORDS = (
    *(
        b"null",
        b"true",
        b"-1",
        b"1e999",
        b"1" * 400,
        b"1" * 5000,
        b"[]",
        b"{}",
        b'""',
        b'"a"',
        b"[[]]",
        b"\xff",
        b"\\ud800",
    ),
    *(b'{"a":' * 2000, _DEEP, b'"' + b"k" * 70_000 + b'"', b"NaN", b"0.5", b'"00000000000000000000000000"'),
)


def mutate_json(rng: random.Random, data: bytes) -> bytes:
    """Change one value of a document; bytes that are none are changed as such."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return mutate_bytes(rng, data)
    return json.dumps(_changed(rng, document)).encode()


def _changed(rng: random.Random, value: Any) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(sorted(value))
        if rng.random() < 0.15:
            return {each: value[each] for each in value if each != name}
        return {**value, name: _changed(rng, value[name])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        if rng.random() < 0.2:
            return value[:at] + value[at + 1 :] if rng.random() < 0.5 else [*value, value[at]]
        return [*value[:at], _changed(rng, value[at]), *value[at + 1 :]]
    return rng.choice(
        (None, True, 0, -1, 1.5, 2**63, 2**64, 10**400, "", "a", "\ud800", "0" * 26, [], {}, [None], {"a": 1}, value)
    )


JSON_MUTATION = any_of(mutate_json, mutate_json, words_mutation(JSON_WORDS))


def _manifest(data: bytes) -> None:
    """Read by columns and plainly; a manifest that can be read can be written and read again."""
    found = attempt(lambda: require_place(lambda: decode_manifest(data, path=PATH), offset_max=len(data)))
    try:
        modes, inner = open_exclusive(data, PATH)
    except CorruptionError:
        return
    plain = attempt(lambda: replace(decode_plain(inner, path=PATH), exclusive=modes))
    require_equal("manifests read both ways", found, plain)
    by_columns = decode_by_columns(inner, path=PATH)
    by_columns = None if by_columns is None else replace(by_columns, exclusive=modes)
    if by_columns is not None:
        require_equal("columns and the plain reader", by_columns, plain)
    if isinstance(found, Manifest) and is_lossless(found) and _has_distinct_ssts(found):
        require_equal("a manifest, written and read again", decode_manifest(encode_manifest(found)), found)


def _has_distinct_ssts(manifest: Manifest) -> bool:
    """Return whether all places with one id have the same SST, which is written once; ``verify`` reports others."""
    ssts = {view.sst for _, tree in manifest.trees() for view in tree.views()}
    return len(ssts) == len({sst.id for sst in ssts})


def _compactions(data: bytes) -> None:
    found = require_place(lambda: decode_compactions(data, path=PATH), offset_max=len(data))
    require_equal("compactions, written and read again", decode_compactions(encode_compactions(found)), found)


def _tracker(data: bytes) -> None:
    tracker = require_place(lambda: SequenceTracker.decode(data, path=PATH))
    for at in (0, 5, 2**64 - 1):
        tracker.seq_to_time(at)
        tracker.time_to_seq(at, round_up=True)
    tracker.record(2**64 - 1, 1 << 40)


def _boundary(data: bytes) -> None:
    require_place(lambda: decode_boundary(data, path=PATH), offset_max=0)


def _visible_range(data: bytes) -> None:
    found: KeyRange = require_place(lambda: decode_visible_range(data, path=PATH))
    assert decode_visible_range(encode_visible_range(found), path=PATH) == found


def _destroyed(data: bytes) -> None:
    found: DestroyedMark = require_place(lambda: decode_destroyed_mark(data, path=PATH))
    assert decode_destroyed_mark(encode_destroyed_mark(found), path=PATH) == found


def _record(data: bytes) -> None:
    found = require_place(lambda: decode_record(data, path=PATH))
    encode_record(found)


def _resealed(data: bytes) -> bytes | None:
    """Return a document with its checksum made right, if it is one."""
    try:
        fields = orjson.loads(data)
        fields.pop("sha256", None)
        fields.pop("schema_version", None)
        return seal(fields)
    except (ValueError, TypeError, AttributeError):
        return None


def _backup_plan(data: bytes) -> None:
    """Read the plan of a backup in progress, and a list of copied objects that holds the same."""
    sealed = _resealed(data)
    if sealed is not None:
        asyncio.run(_unfinished(sealed))


async def _unfinished(sealed: bytes) -> None:
    objects = MemoryStore()
    await objects.put(plan_key("db", Ulid(1)), sealed)
    await objects.put(journal_key("db", Ulid(1), Ulid(2)), sealed)
    await BackupStore(objects, "db", Env(SystemClock(), random.Random(1), InlineCpu())).unfinished()


def _backup(data: bytes) -> None:
    """Read a document as it is, and with its checksum made right."""
    attempt(lambda: require_place(lambda: decode_backup(data, path=PATH)))
    sealed = _resealed(data)
    if sealed is None:
        return
    found = require_place(lambda: decode_backup(sealed, path=PATH))
    _ = found.size, found.encryption_keys, found.manifest
    _ = found.wal
    encode_backup(found)


def _checkpoint_name(data: bytes) -> None:
    """Read the name of a checkpoint, which tells of writers and challenges."""
    name = data.decode(errors="replace")
    checkpoint = Checkpoint(id=UUID(int=1), manifest_id=ManifestId(1), expire_s=0, create_s=5, name=name)
    manifest = Manifest(checkpoints=(checkpoint,), writer_epoch=Epoch(3))
    found = WriterIdentity.of(checkpoint)
    again = replace(checkpoint, name=found.checkpoint_name(Epoch(3)))
    require_equal("a name, read and written again", replace(WriterIdentity.of(again), since_s=found.since_s), found)
    writer_status(manifest, 10)
    embedded_compactor(manifest)
    challenged_epoch(name)


def _gc_plan(data: bytes) -> None:
    GcPlan.from_json(orjson.loads(data))


def _gc_plans() -> list[bytes]:
    planned = PlannedObject(Task.COMPACTED, "db/compacted/x.sst", 5, 6, "unreferenced", 7)
    ages = {Task.COMPACTED: 5.0}
    fields: dict[str, Any] = {"database": "db", "manifest_id": 3, "compactions_id": None, "made_at_ms": 99}
    return [orjson.dumps(GcPlan(**fields, min_ages_s=ages, objects=(planned,)).as_json())]


def _cached_part(data: bytes) -> None:
    """Read a file of the disk cache, of which a crash may have left any part: the bytes that were put, or nothing."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        for length in (4, 40_000):
            for start, end in ((0, length), (1, 2), (length - 1, length)):
                wanted = PartRange(bytes(range(16)), 2, length, start, end)
                found = read_part(file.fileno(), wanted)
                if found is not None:
                    require_equal("a part and its length", len(found), end - start)
                    if data in documents.cached_parts():
                        require_equal("an intact part and its file", found, data[head_size(length) :][start:end])


def _feed_offset(data: bytes) -> None:
    """Read a position of a feed, as Spark stores it, and a place to start as a user writes it."""
    text = data.decode(errors="replace")
    with suppress(InvalidRequestError):
        parse_start(text)
    try:
        stored = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(stored, dict):
        offset = FeedOffset.from_json(stored)
        assert FeedOffset.from_json(offset.to_json()) == offset


def _mutate_enveloped(root: Callable[[bytes], str]) -> Mutation:
    def change(rng: random.Random, data: bytes) -> bytes:
        start = _flat_start(data)
        if start > 2 and rng.random() < 0.5:
            return data[:4] + mutate_json(rng, data[4:start]) + data[start:]
        if rng.random() < 0.05:
            return rng.choice((b"\0\1", b"\0\2", b"\0\3", b"\xff\xff")) + data[2:]
        return data[:start] + mutate_flat(rng, data[start:], root(data[start - 2 : start]))

    return change


def _flat_start(data: bytes) -> int:
    """Return where the FlatBuffer begins, also if the modes of the database come before it."""
    try:
        inside = open_exclusive(data)[1]
    except CorruptionError:
        return 2
    return len(data) - len(inside) + 2


def manifest_root(version: bytes) -> str:
    """Return the schema's name of the root table of a manifest."""
    return "ManifestV1" if version == b"\0\1" else "ManifestV2"


def _manifests() -> list[bytes]:
    found = list(samples.files("*.manifest", size_max=20_000))
    for data in list(found):
        manifest = decode_manifest(data)
        if not manifest.segments and manifest.segment_extractor_name is None:
            try:
                found.append(encode_manifest(manifest, 1))
            except ValueError:
                continue
    modes = ExclusiveModes(max_parallel_writes=4, cas=CasMode.TWO_PHASE, wal_backend="other")
    return [*found, encode_manifest(replace(decode_manifest(found[0]), exclusive=modes))]


def _trackers() -> list[bytes]:
    tracker = SequenceTracker((seq * 1000, 60 * seq + seq % 7) for seq in range(50))
    stored = {decode_manifest(data).sequence_tracker for data in samples.files("*.manifest")}
    return [tracker.encode(), SequenceTracker().encode(), *sorted(stored, key=len)]


_IN_NAMES = (b"since=", b"&", b"compactor=", b"9" * 5000, b"worker=%00", b"%", b"endpoint=", b"\xd9\xa3", b"=", b"-1")


def _names() -> list[bytes]:
    return [b"writer:3?holder=a&host=b&since=17&endpoint=c&compactor=4&worker=w", b"standby:3?host=x", b"daily"]


def targets() -> list[Target]:
    corrupt = (CorruptionError,)
    flat = (
        *("shale.format.envelope", "shale.format.flat.verifier", "shale.format.flat.accessors"),
        *("shale.format.flat.columns", "shale.format.sst_references", "shale.format.sst.info"),
    )
    manifests = (
        *("shale.format.manifest", "shale.format.manifest_reader", "shale.format.manifest_columns"),
        *("shale.format.exclusive", *flat),
    )
    compactions = ("shale.format.compactions", *flat)
    return [
        Target("manifest", _manifest, _manifests, (), manifests, _mutate_enveloped(manifest_root), weight=3),
        Target(
            "compactions",
            _compactions,
            lambda: samples.files("*.compactions"),
            corrupt,
            compactions,
            _mutate_enveloped(lambda _: "CompactionsV1"),
            weight=2,
        ),
        Target(
            "checkpoint name", _checkpoint_name, _names, (), ("shale.types.writer_sign",), words_mutation(_IN_NAMES)
        ),
        Target("gc plan", _gc_plan, _gc_plans, (InvalidRequestError, ValueError), ("shale.gc.plan",), JSON_MUTATION),
        Target("disk cache", _cached_part, documents.cached_parts, (), ("shale.sst.disk_part",)),
        Target("sequence tracker", _tracker, _trackers, corrupt, ("shale.format.sequence_tracker",)),
        Target(
            "boundary", _boundary, lambda: [b"0", b" 17\n", b"%d" % (2**64 - 1)], corrupt, ("shale.format.boundary",)
        ),
        Target(
            "visible range",
            _visible_range,
            documents.visible_ranges,
            corrupt,
            ("shale.protocol.visible_range",),
            JSON_MUTATION,
        ),
        Target("destroyed marker", _destroyed, documents.markers, corrupt, ("shale.protocol.markers",), JSON_MUTATION),
        Target(
            "compaction record",
            _record,
            documents.compaction_records,
            corrupt,
            ("shale.compaction.records", "shale.compaction.requests"),
            JSON_MUTATION,
        ),
        Target(
            "backup plan", _backup_plan, documents.backup_plans, corrupt, ("shale.backup.backup_store",), JSON_MUTATION
        ),
        Target("backup document", _backup, documents.backups, corrupt, ("shale.backup.document",), JSON_MUTATION),
        Target(
            "feed offset",
            _feed_offset,
            lambda: [b'{"wal_id": 3, "seq": 17, "inside": true}', b"latest", b"seq:17", b"99"],
            (InvalidRequestError,),
            ("shale.engine.wal.feed.offset", "shale.core.settings_values"),
            JSON_MUTATION,
        ),
    ]
