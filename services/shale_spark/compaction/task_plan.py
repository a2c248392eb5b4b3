"""The plan of one task, about a kilobyte: the range, its inputs, and the rules of the job.

The entry and the manifest are encoded in their own formats, trimmed to what this range needs: an executor reads
neither.
"""

from dataclasses import asdict, field, replace
from typing import Any

import msgpack

from shale.core.lazy_dataclass import dataclass
from shale.crypto.aes_gcm import key_file_of, transformer_of
from shale.engine.location import DatabaseLocation
from shale.errors import InvalidRequestError
from shale.format.blocks.transform import BlockTransformer
from shale.format.compactions import decode_compactions, encode_compactions
from shale.format.manifest import decode_manifest, encode_manifest
from shale.format.sst.filter_policy import BloomPolicy, DelimitedPrefix, FixedPrefix
from shale.sst.options import SstOptions
from shale.store.options import RetryPolicy, StoreOptions
from shale.types import (
    EMPTY_SEQUENCE_TRACKER,
    Compaction,
    CompactionContext,
    Compactions,
    CompactionStatus,
    Compression,
    ExternalDb,
    KeyRange,
    Manifest,
    Segment,
    Seq,
    SortedRun,
    SstView,
    Subcompaction,
    TieredSpec,
    Tree,
)
from shale_compactor.execution.job import Job
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.transforms import TransformNames


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """One range of one job.

    Args:
        where: the database; its store is a URL that executors can reach.
        job: inputs that meet the range, and the job's rules.
        index: the number of the range in the job.
        range: the keys that this task merges.
        retention_min_seq: the job's retention barrier.
        options: how output is written, and the memory of a task.
        transforms: the merge operator and filters, by name.
        driver: host and port of the driver's task server.
        token: the secret that identifies a task of this job.
    """

    where: DatabaseLocation
    job: Job
    index: int
    range: KeyRange
    retention_min_seq: Seq
    options: ExecutorOptions
    transforms: TransformNames = field(default_factory=TransformNames)
    driver: tuple[str, int]
    token: str


def trim_job(job: Job, keys: KeyRange) -> Job:
    """Return the job with only the inputs that meet a range; its rules stay, because they concern the whole job."""
    l0 = tuple(view for view in job.l0 if _meets(view, keys))
    runs = [replace(run, ssts=tuple(view for view in run.ssts if _meets(view, keys))) for run in job.runs]
    runs = [run for run in runs if run.ssts]
    return replace(job, l0=l0, runs=tuple(runs), manifest=_manifest_of(job, l0, runs))


def _meets(view: SstView, keys: KeyRange) -> bool:
    return not view.effective_range.intersect(keys).is_empty


def _manifest_of(job: Job, l0: tuple[SstView, ...], runs: list[SortedRun]) -> Manifest:
    """Return a manifest with only these inputs and the external databases that hold them."""
    tree = Tree(l0=l0, compacted=tuple(runs))
    needed = {view.sst.id for view in tree.views()}
    external = [
        ExternalDb(path=db.path, source_checkpoint_id=db.source_checkpoint_id, sst_ids=ids)
        for db in job.manifest.external_dbs
        if (ids := tuple(sst_id for sst_id in db.sst_ids if sst_id in needed))
    ]
    segment = job.spec.segment
    return replace(
        job.manifest,
        tree=Tree() if segment else tree,
        segments=(Segment(prefix=segment, tree=tree),) if segment else (),
        checkpoints=(),
        external_dbs=tuple(external),
        sequence_tracker=EMPTY_SEQUENCE_TRACKER,
    )


def encode_plan(plan: TaskPlan) -> bytes:
    """Encode the plan.

    Raises:
        InvalidRequestError: the store is an object of this process, or filters use prefixes that user code defines.
    """
    context = CompactionContext(
        subcompactions=(Subcompaction(range=plan.range),), retention_min_seq=plan.retention_min_seq
    )
    entry = Compaction(id=plan.job.id, spec=plan.job.spec, status=CompactionStatus.RUNNING, ctx=context)
    fields = {
        "where": _where_fields(plan.where),
        "entry": encode_compactions(Compactions(entries=(entry,))),
        "manifest": encode_manifest(plan.job.manifest),
        "rules": [plan.job.is_dest_last_run, plan.job.clock_tick],
        "index": plan.index,
        "options": _options_fields(plan.options),
        "transforms": asdict(plan.transforms),
        "driver": list(plan.driver),
        "token": plan.token,
    }
    return msgpack.packb(fields)  # type: ignore[no-any-return]


def decode_plan(data: bytes) -> TaskPlan:
    """Decode the plan."""
    fields = msgpack.unpackb(data)
    (entry,) = decode_compactions(fields["entry"]).entries
    assert entry.ctx is not None, "every plan has its range"
    assert isinstance(entry.spec, TieredSpec), "drains are never executed"
    (only,) = entry.ctx.subcompactions
    transforms = fields["transforms"]
    host, port = fields["driver"]
    where = _where(fields["where"])
    return TaskPlan(
        where=where,
        job=_job(entry, entry.spec, decode_manifest(fields["manifest"]), *fields["rules"]),
        index=fields["index"],
        range=only.range,
        retention_min_seq=entry.ctx.retention_min_seq,
        options=_options(fields["options"], where.block_transformer),
        transforms=TransformNames(**transforms | {"compaction_filters": tuple(transforms["compaction_filters"])}),
        driver=(host, port),
        token=fields["token"],
    )


def _job(entry: Compaction, spec: TieredSpec, manifest: Manifest, is_dest_last_run: bool, clock_tick: int) -> Job:
    tree = manifest.tree_of(spec.segment)
    assert tree is not None, "the manifest was cut to this tree"
    return Job(
        id=entry.id,
        spec=spec,
        manifest=manifest,
        l0=tree.l0,
        runs=tree.compacted,
        is_dest_last_run=is_dest_last_run,
        clock_tick=clock_tick,
    )


def require_store_url(where: DatabaseLocation) -> str:
    """Return the URL of the store.

    Raises:
        InvalidRequestError: it is an object of this process.
    """
    if not isinstance(where.store, str) or where.store.startswith("memory:"):
        raise InvalidRequestError("compaction on Spark needs a store that executors can reach by its URL")
    return where.store


def _where_fields(where: DatabaseLocation) -> dict[str, Any]:
    store = require_store_url(where)
    options = asdict(where.store_options)
    options |= {"config": dict(where.store_options.config), "client": dict(where.store_options.client)}
    return {"store": store, "root": where.root, "options": options, "key_file": key_file_of(where.block_transformer)}


def _where(fields: dict[str, Any]) -> DatabaseLocation:
    options = fields["options"]
    return DatabaseLocation(
        fields["store"],
        fields["root"],
        None,
        StoreOptions(**options | {"retry": RetryPolicy(**options["retry"])}),
        transformer_of(fields["key_file"]),
    )


def _options_fields(options: ExecutorOptions) -> dict[str, Any]:
    extractors = [policy.prefix_extractor for policy in options.sst.filter_policies]
    if not all(each is None or type(each) in (FixedPrefix, DelimitedPrefix) for each in extractors):
        raise InvalidRequestError("only local executors can write filters over prefixes that user code defines")
    return asdict(replace(options, sst=replace(options.sst, transformer=None)))  # `where` names the transformer


def _options(fields: dict[str, Any], transformer: BlockTransformer | None) -> ExecutorOptions:
    sst = fields["sst"]
    policies = tuple(_policy(**policy) for policy in sst["filter_policies"])
    compression = Compression(sst["compression"])
    numbers: dict[str, Any] = {name: value for name, value in fields.items() if name != "sst"}
    chosen = {"filter_policies": policies, "compression": compression, "transformer": transformer}
    return ExecutorOptions(sst=SstOptions(**sst | chosen), **numbers)


def _policy(bits_per_key: int, prefix_extractor: dict[str, Any] | None, whole_key: bool) -> BloomPolicy:
    if prefix_extractor is None:
        return BloomPolicy(bits_per_key, None, whole_key)
    kind = FixedPrefix if "length" in prefix_extractor else DelimitedPrefix
    return BloomPolicy(bits_per_key, kind(**prefix_extractor), whole_key)
