"""A task's plan is small and complete, and survives serialization."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from shale.crypto.aes_gcm import AesGcm
from shale.engine.location import DatabaseLocation
from shale.errors import InvalidRequestError
from shale.format.sst.filter_policy import BloomPolicy, DelimitedPrefix, FixedPrefix
from shale.sst.options import SstOptions
from shale.store.memory import MemoryStore
from shale.store.options import RetryPolicy, StoreOptions
from shale.types import (
    EVERYTHING,
    Checkpoint,
    Compression,
    ExternalDb,
    KeyRange,
    Manifest,
    ManifestId,
    RunId,
    Segment,
    Seq,
    SortedRun,
    Tree,
)
from shale_compactor.execution.job import Job, plan_job
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.transforms import TransformNames
from shale_spark.compaction.task_plan import TaskPlan, decode_plan, encode_plan, trim_job
from tests.unit.compactor.values import entry, spec, ulid, view

WHERE = DatabaseLocation(
    "s3://bucket",
    "teams/orders",
    None,
    StoreOptions(retry=RetryPolicy(retries_max=3), config={"aws_endpoint": "http://127.0.0.1:1"}),
)
OPTIONS = ExecutorOptions(
    sst=SstOptions(compression=Compression.ZSTD, filter_policies=(BloomPolicy(bits_per_key=12),)), memory_bytes=99
)
NAMES = TransformNames(merge_operator="m:sum", merge_passthrough=False, compaction_filters=("a:b", "c"))


def key(number: int) -> bytes:
    return b"%04d" % number


def job(segment: bytes = b"", *, others: int = 0) -> Job:
    """Return a job: a run of ten SSTs, two L0s above, an older run below, and unrelated manifest fields."""
    run = SortedRun(id=RunId(4), ssts=tuple(view(200 + i, keys=(key(100 * i), key(100 * i + 99))) for i in range(10)))
    l0 = (view(301, keys=(key(0), key(999))), view(300, keys=(key(0), key(99))))
    tree = Tree(l0=l0, compacted=(run, SortedRun(id=RunId(1), ssts=(view(100),))))
    manifest = Manifest(
        tree=Tree(l0=(view(900),)) if segment else tree,
        segments=(Segment(prefix=segment, tree=tree),) if segment else (),
        last_l0_clock_tick=77,
        sequence_tracker=b"\x01" + bytes(5000),
        checkpoints=tuple(Checkpoint(id=UUID(int=i), manifest_id=ManifestId(i)) for i in range(1, others)),
        external_dbs=(ExternalDb(path="parent", source_checkpoint_id=UUID(int=9), sst_ids=(ulid(203), ulid(999))),),
    )
    return plan_job(entry(500, spec(l0=(301, 300), runs=(4,), to=4, segment=segment)), manifest)


def plan_of(whole: Job, keys: KeyRange) -> TaskPlan:
    return TaskPlan(
        where=WHERE,
        job=trim_job(whole, keys),
        index=3,
        range=keys,
        retention_min_seq=Seq(2**50),
        options=OPTIONS,
        transforms=NAMES,
        driver=("127.0.0.1", 4711),
        token="ab" * 16,
    )


@pytest.mark.parametrize("segment", [b"", b"seg"])
@pytest.mark.parametrize(
    "keys", [EVERYTHING, KeyRange.half_open(key(300), key(400)), KeyRange.half_open(key(5000), None)]
)
def test_a_plan_comes_back_as_it_was(segment: bytes, keys: KeyRange) -> None:
    """The job included, by value."""
    plan = plan_of(job(segment), keys)
    assert decode_plan(encode_plan(plan)) == plan


def test_a_task_gets_the_inputs_that_meet_its_range() -> None:
    """With their order, their paths, and the rules of the whole job."""
    whole = job()
    cut = trim_job(whole, KeyRange.half_open(key(300), key(400)))
    assert cut.l0 == whole.l0[:1]
    assert [(run.id, run.ssts) for run in cut.runs] == [(RunId(4), whole.runs[0].ssts[3:4])]
    assert (cut.id, cut.spec, cut.is_dest_last_run, cut.clock_tick) == (whole.id, whole.spec, False, 77)
    assert [(db.path, db.sst_ids) for db in cut.manifest.external_dbs] == [("parent", (ulid(203),))]


def test_views_count_by_what_they_show() -> None:
    """An SST of a projected clone may hold keys that this database does not have."""
    whole = job()
    hidden = replace(whole.l0[0], visible_range=KeyRange.half_open(None, key(300)))
    whole = replace(whole, l0=(hidden, whole.l0[1]))
    assert trim_job(whole, KeyRange.half_open(key(300), key(400))).l0 == ()


def test_a_plan_is_small_whatever_the_database_holds() -> None:
    """Checkpoints, the sequence tracker and other trees are not part of it."""
    keys = KeyRange.half_open(key(300), key(400))
    assert len(encode_plan(plan_of(job(others=500), keys))) < 1800


@pytest.mark.parametrize("store", [MemoryStore(), "memory:///"])
def test_a_store_of_this_process_is_refused(store: MemoryStore | str) -> None:
    """Executors would open another store, or none."""
    plan = replace(plan_of(job(), EVERYTHING), where=DatabaseLocation(store, "db"))
    with pytest.raises(InvalidRequestError, match="URL"):
        encode_plan(plan)


class OwnPrefix:
    """A prefix extractor that the user wrote."""

    name = "own"

    def prefix_len(self, key: bytes) -> int | None:
        return 1

    def scan_prefix_len(self, prefix: bytes) -> int | None:
        return 1


def test_filters_over_prefixes_travel() -> None:
    extractors = (None, FixedPrefix("p3", 3), DelimitedPrefix("tenant", b"/\xff"))
    policies = tuple(BloomPolicy(7, each, whole_key=each is None) for each in extractors)
    options = replace(OPTIONS, sst=SstOptions(filter_policies=policies))
    plan = replace(plan_of(job(), EVERYTHING), options=options)
    assert decode_plan(encode_plan(plan)).options.sst.filter_policies == policies


def test_filters_over_prefixes_of_code_are_refused() -> None:
    """The code may be missing on executors; without it, SSTs would lack filters."""
    options = replace(OPTIONS, sst=SstOptions(filter_policies=(BloomPolicy(prefix_extractor=OwnPrefix()),)))
    with pytest.raises(InvalidRequestError, match="prefixes"):
        encode_plan(replace(plan_of(job(), EVERYTHING), options=options))


def test_keys_travel_as_the_name_of_their_file(tmp_path: Path) -> None:
    secret = bytes(range(32))
    keys = tmp_path / "keys"
    keys.write_text(f"k1 {secret.hex()}\n")
    transformer = AesGcm.from_file(keys)
    plan = plan_of(job(), EVERYTHING)
    sst = replace(plan.options.sst, transformer=transformer)
    where = replace(plan.where, block_transformer=transformer)
    encoded = encode_plan(replace(plan, where=where, options=replace(plan.options, sst=sst)))
    assert secret not in encoded
    assert secret.hex().encode() not in encoded
    there = decode_plan(encoded)
    assert there.options.sst.transformer is there.where.block_transformer
    assert isinstance(there.options.sst.transformer, AesGcm)
    assert there.options.sst.transformer.decode(transformer.encode(b"x")) == b"x"


def test_keys_without_a_file_are_refused() -> None:
    plan = plan_of(job(), EVERYTHING)
    where = replace(plan.where, block_transformer=AesGcm({"k": bytes(32)}))
    with pytest.raises(InvalidRequestError, match="from_file"):
        encode_plan(replace(plan, where=where))
