"""One field of the newest manifest, or one file, is damaged so that it still decodes: verify finds it, or cannot know.

A finding names the object, and for a manifest the field.  What verify cannot know has a reason each.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple

import anyio
import pytest

import shale
from shale.format.names import compactions_key, manifest_key, sst_key, wal_key
from shale.format.sequence_tracker import SequenceTracker
from shale.sst.verify.sst import VerifyDepth
from shale.types import Epoch, Manifest, Seq, Tree, Ulid, WalId
from tests.unit.admin.verify.harness import PATH, Harness

Change = Callable[[Manifest], Manifest]
Damage = Callable[[Harness], Awaitable[str]]
TOP = 2**64 - 1


class Case(NamedTuple):
    """A damage; ``field``: what the finding says; ``unknown``: why there is none."""

    name: str
    damage: Damage
    field: str = ""
    unknown: str = ""


def manifest(change: Change) -> Damage:
    async def do(harness: Harness) -> str:
        return await harness.rewrite(change)

    return do


def fields(**values: object) -> Damage:
    return manifest(lambda it: replace(it, **values))  # type: ignore[arg-type]


def tree(change: Callable[[Tree], Tree]) -> Damage:
    return manifest(lambda it: replace(it, tree=change(it.tree)))


async def wal_id(harness: Harness, place: int) -> int:
    """Return the id of a file with rows that replay needs."""
    latest = (await harness.latest())[1]
    with_rows = [
        number
        for number in range(latest.replay_after_wal_id + 1, latest.next_wal_sst_id)
        if harness.store.objects[wal_key(PATH, number)].data
    ]
    return with_rows[place]


def file(key: Callable[[Harness], Awaitable[str]], change: Callable[[bytes], bytes | None]) -> Damage:
    async def do(harness: Harness) -> str:
        found = await key(harness)
        got = await harness.store.get(found)
        assert got is not None
        data = change(bytes(got.data))
        await (harness.store.delete(found) if data is None else harness.store.put(found, data))
        return found

    return do


def wal(place: int) -> Callable[[Harness], Awaitable[str]]:
    async def key(harness: Harness) -> str:
        return wal_key(PATH, await wal_id(harness, place))

    return key


async def newest(harness: Harness) -> str:
    return manifest_key(PATH, (await harness.latest())[0])


async def older(harness: Harness) -> str:
    return manifest_key(PATH, (await harness.latest())[0] - 1)


async def l0(harness: Harness) -> str:
    return sst_key(PATH, (await harness.latest())[1].tree.l0[0].sst.id)


async def run(harness: Harness) -> str:
    return sst_key(PATH, (await harness.latest())[1].tree.compacted[0].ssts[0].sst.id)


async def compactions(_: Harness) -> str:
    return compactions_key(PATH, 1)


def emptied(_: bytes) -> bytes:
    return b""


def cut(data: bytes) -> bytes:
    return data[:-1]


def gone(_: bytes) -> None:
    return None


async def last_seq(harness: Harness) -> int:
    """Return the sequence number of the newest row of the WAL."""
    async with shale.DbReader.open(PATH, store=harness.store, env=harness.env, follow_latest=True) as reader:
        return reader.visible_seq


def seq(change: Callable[[int, int], int]) -> Damage:
    """Change ``last_l0_seq``, given it and that of the newest row."""

    async def do(harness: Harness) -> str:
        newest_seq = await last_seq(harness)
        return await harness.rewrite(lambda it: replace(it, last_l0_seq=Seq(change(int(it.last_l0_seq), newest_seq))))

    return do


def moved(name: str, by: int) -> Damage:
    """Add to a number of the manifest."""
    return manifest(lambda it: replace(it, **{name: getattr(it, name) + by}))


def later(it: Manifest) -> Manifest:
    points = SequenceTracker.decode(it.sequence_tracker).points
    return replace(it, sequence_tracker=SequenceTracker([*points, (int(it.last_l0_seq) + 9, 2**31)]).encode())


STEP = "a process could have written this value"
NO_ROWS = "a compaction that leaves no row looks the same"
FENCE = "an empty file is what a writer leaves when it opens"
ESTIMATE = "no other file has it"
CASES = (
    Case("last_l0_seq raised by one", seq(lambda it, _: it + 1), "last_l0_seq"),
    Case("last_l0_seq raised to the newest row", seq(lambda _, newest: newest), "last_l0_seq"),
    Case("last_l0_seq raised above the newest row", seq(lambda _, newest: newest + 1000), "last_l0_seq"),
    Case("last_l0_seq at 2**62", seq(lambda *_: 2**62), "last_l0_seq"),
    Case("last_l0_seq at the end", seq(lambda *_: TOP), "last_l0_seq"),
    Case("last_l0_seq lowered by one", seq(lambda it, _: it - 1), "last_l0_seq"),
    Case("last_l0_seq is 0", seq(lambda *_: 0), "last_l0_seq"),
    Case(
        "replay_after_wal_id raised by one",
        moved("replay_after_wal_id", 1),
        unknown="the file that it passes is a fence",
    ),
    Case("replay_after_wal_id raised by three", moved("replay_after_wal_id", 3), "replay_after_wal_id"),
    Case(
        "replay_after_wal_id raised to the end",
        manifest(lambda it: replace(it, replay_after_wal_id=WalId(it.next_wal_sst_id - 1))),
        "replay_after_wal_id",
    ),
    Case("replay_after_wal_id at 2**62", fields(replay_after_wal_id=WalId(2**62)), "replay_after_wal_id"),
    Case("replay_after_wal_id at the end", fields(replay_after_wal_id=WalId(TOP)), "replay_after_wal_id"),
    Case("replay_after_wal_id lowered by one", moved("replay_after_wal_id", -1), "replay_after_wal_id"),
    Case("replay_after_wal_id is 0", fields(replay_after_wal_id=WalId(0)), "replay_after_wal_id"),
    Case("next_wal_sst_id raised by one", moved("next_wal_sst_id", 1), "manifest"),
    Case("next_wal_sst_id at 2**62", fields(next_wal_sst_id=WalId(2**62)), "manifest"),
    Case("next_wal_sst_id at the end", fields(next_wal_sst_id=WalId(TOP)), "next_wal_sst_id"),
    Case("next_wal_sst_id lowered by one", moved("next_wal_sst_id", -1), "next_wal_sst_id"),
    Case("next_wal_sst_id is 1", fields(next_wal_sst_id=WalId(1)), "next_wal_sst_id"),
    Case("writer_epoch is 0", fields(writer_epoch=Epoch(0)), "writer_epoch"),
    Case("writer_epoch raised by one", moved("writer_epoch", 1), unknown=STEP),
    Case("writer_epoch at the end", fields(writer_epoch=Epoch(TOP)), "writer_epoch"),
    Case("compactor_epoch raised by one", fields(compactor_epoch=Epoch(1)), unknown=STEP),
    Case("compactor_epoch at the end", fields(compactor_epoch=Epoch(TOP)), "compactor_epoch"),
    Case("l0 is empty", tree(lambda it: replace(it, l0=())), "l0"),
    Case("l0 lacks the newest", tree(lambda it: replace(it, l0=it.l0[1:])), "l0"),
    Case("l0 lacks the oldest", tree(lambda it: replace(it, l0=it.l0[:-1])), "l0"),
    Case("l0 is reversed", tree(lambda it: replace(it, l0=it.l0[::-1])), "L0"),
    Case("l0 names one twice", tree(lambda it: replace(it, l0=(it.l0[0], *it.l0))), "L0"),
    Case("compacted is empty", tree(lambda it: replace(it, compacted=())), unknown=NO_ROWS),
    Case(
        "a run lacks its last SST",
        tree(lambda it: replace(it, compacted=(replace(it.compacted[0], ssts=it.compacted[0].ssts[:1]),))),
        unknown=NO_ROWS,
    ),
    Case("the whole tree is empty", tree(lambda _: Tree()), "l0"),
    Case(
        "the watermark is at a listed L0",
        tree(lambda it: replace(it, last_compacted_l0_sst_view_id=it.l0[0].id)),
        "L0",
    ),
    Case(
        "l0 is empty and the watermark has moved",
        tree(lambda it: replace(it, l0=(), last_compacted_l0_sst_view_id=it.l0[0].id)),
        unknown=NO_ROWS,
    ),
    Case(
        "the watermark is in the future",
        tree(lambda it: replace(it, last_compacted_l0_sst_view_id=Ulid(2**127))),
        unknown=STEP,
    ),
    Case("last_l0_clock_tick raised", fields(last_l0_clock_tick=2**62), unknown=ESTIMATE),
    Case("last_l0_clock_tick lowered", fields(last_l0_clock_tick=0), unknown=ESTIMATE),
    Case("recent_snapshot_min_seq is 0", fields(recent_snapshot_min_seq=Seq(0)), unknown=STEP),
    Case("recent_snapshot_min_seq raised", fields(recent_snapshot_min_seq=Seq(2**62)), unknown=STEP),
    Case("sequence_tracker is empty", fields(sequence_tracker=SequenceTracker().encode()), unknown=ESTIMATE),
    Case("sequence_tracker is nonsense", fields(sequence_tracker=b"\x09" + bytes(12)), "sequence tracker"),
    Case("sequence_tracker is ahead", manifest(later), "sequence_tracker"),
    Case("checkpoints are gone", fields(checkpoints=()), unknown="a checkpoint may be deleted at any time"),
    Case("a segment extractor", fields(segment_extractor_name="first"), "segment"),
    Case("the newest manifest is empty", file(newest, emptied), "bytes"),
    Case("the newest manifest is cut", file(newest, cut), ""),
    Case("the newest manifest is gone", file(newest, gone), unknown="the version before is then the newest"),
    Case("an older manifest is empty", file(older, emptied), "bytes"),
    Case("compactions are empty", file(compactions, emptied), "bytes"),
    Case("compactions are gone", file(compactions, gone), unknown="there are none before the first compactor"),
    Case("an L0 is empty", file(l0, emptied), "0 bytes"),
    Case("an L0 is cut", file(l0, cut), ""),
    Case("an L0 is gone", file(l0, gone), "gone"),
    Case("an SST of a run is empty", file(run, emptied), "0 bytes"),
    Case("an SST of a run is gone", file(run, gone), "gone"),
    Case("the first WAL file is empty", file(wal(0), emptied), unknown=FENCE),
    Case("a WAL file is empty", file(wal(1), emptied), unknown=FENCE),
    Case("the last WAL file is empty", file(wal(-1), emptied), unknown=FENCE),
    Case("a WAL file is cut", file(wal(1), cut), ""),
    Case("the first WAL file is gone", file(wal(0), gone), "gone"),
    Case("a WAL file is gone", file(wal(1), gone), "gone"),
    Case("the last WAL file is gone", file(wal(-1), gone), "log ends"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_is_found_or_cannot_be_known(case: Case) -> None:
    async def main() -> None:
        harness = await Harness.build()
        place = await case.damage(harness)
        report = await harness.verify(depth=VerifyDepth.CHECKSUMS)
        assert report.cannot_know
        found = [finding for finding in report.findings if finding.object == place or case.field in finding.what]
        if case.unknown:
            assert not report.findings, report.findings
        else:
            assert any(case.field in str(finding) for finding in found), report.findings

    anyio.run(main)
