"""Divide an inventory into parts, check each part independently, and combine their results."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import TypeVar

from shale.admin.verify.inventory import Inventory, NeededSst
from shale.admin.verify.tree_steps import HiddenSeqs
from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.protocol.checkpoints import replaced_versions
from shale.protocol.wal_store import WalStore
from shale.sst.verify.codes import Code
from shale.sst.verify.finding import Finding
from shale.sst.verify.sst import VerifyDepth, verify_sst
from shale.sst.verify.wal_file import verify_wal_file
from shale.store.port import ObjectStore
from shale.types import Manifest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class VerifyPart:
    """Objects to check together; ``wal``: ids of WAL files."""

    ssts: tuple[NeededSst, ...] = ()
    wal: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WalSeqs:
    """First and last sequence number of the rows of a WAL file; only the first is known unless ``is_decoded``."""

    wal_id: int
    first: int
    last: int
    is_decoded: bool = True


@dataclass(frozen=True, slots=True)
class PartResult:
    """The result of checking one part.

    Args:
        gone: keys of missing objects.
        wal: sequence numbers of the readable WAL files with rows.
        opaque: objects with valid checksums that could not be decoded.
        opened: objects that could be decoded.
        blocks: blocks of SSTs whose checksums were checked.
    """

    findings: tuple[Finding, ...] = ()
    gone: tuple[str, ...] = ()
    wal: tuple[WalSeqs, ...] = ()
    rows: int = 0
    read_bytes: int = 0
    opaque: int = 0
    opened: int = 0
    blocks: int = 0


def plan_parts(inventory: Inventory, *, part_bytes: int, items_max: int) -> Iterator[VerifyPart]:
    """Yield parts of about ``part_bytes`` with at most ``items_max`` objects each; fences are skipped."""
    sized = ((needed.sst.estimated_size_bytes, needed) for needed in inventory.ssts)
    for ssts in _packed(sized, part_bytes, items_max):
        yield VerifyPart(ssts=ssts)
    files = ((file.size, int(file.id)) for file in inventory.wal_files if not file.is_fence)
    for ids in _packed(files, part_bytes, items_max):
        yield VerifyPart(wal=ids)


async def verify_part(
    part: VerifyPart,
    store: ObjectStore,
    wal: WalStore,
    env: Env,
    *,
    depth: VerifyDepth = VerifyDepth.DEEP,
    on_read: Callable[[int], None] = lambda _: None,
    decode_wal_after: int = 0,
) -> PartResult:
    """Read and check each object of a part, one after the other; ``wal`` has the block transformer of both kinds.

    Args:
        part, store, wal, env: the objects and their surroundings.
        depth: what is read of SSTs.
        on_read: gets the number of bytes of each range of an SST that was checked.
        decode_wal_after: of WAL files up to this id only the checksums are checked.
    """
    findings: list[Finding] = []
    gone: list[str] = []
    seqs: list[WalSeqs] = []
    rows = read_bytes = opaque = opened = blocks = 0
    for needed in part.ssts:
        verdict = await verify_sst(
            store, needed.path, needed.sst, env, transformer=wal.transformer, depth=depth, on_read=on_read
        )
        opaque += verdict.is_undecodable
        opened += not verdict.is_undecodable and not verdict.is_gone
        findings += verdict.findings
        gone += [needed.path] if verdict.is_gone else []
        rows += verdict.totals.rows
        blocks += verdict.blocks
        read_bytes += verdict.read_bytes
        if verdict.totals.max_seq > needed.last_seq:
            what = f"it has rows up to seq {verdict.totals.max_seq}; readers see none above {needed.last_seq}"
            findings.append(Finding(needed.path, what, None, Code.SEQ_ABOVE_MANIFEST))
    for wal_id in part.wal:
        data = await wal.read(wal_id)
        if data is None:
            gone.append(wal.key(wal_id))
            continue
        check = partial(verify_wal_file, decode_rows=wal_id > decode_wal_after)
        checked = await env.cpu.run(partial(check, data, wal.key(wal_id), wal.transformer))
        findings += checked.findings
        opaque += checked.is_undecodable
        opened += checked.rows > 0 or not (checked.is_undecodable or checked.findings)
        rows += checked.rows
        read_bytes += len(data)
        if checked.first_seq:
            seqs.append(WalSeqs(wal_id, checked.first_seq, checked.last_seq, checked.rows > 0))
    return PartResult(tuple(findings), tuple(gone), tuple(seqs), rows, read_bytes, opaque, opened, blocks)


def wal_disorder(seqs: Iterable[WalSeqs], wal: WalStore, latest: Manifest) -> Iterator[Finding]:
    """Yield WAL files that do not start above the ones before them, which replay refuses.

    After each restore in place the numbers may start again lower, once.
    """
    restores = len(replaced_versions(latest))
    decoded = sorted((each for each in seqs if each.is_decoded), key=lambda each: each.wal_id)
    for before, file in pairwise(decoded):
        if file.first > before.last:
            continue
        if restores:
            restores -= 1
        else:
            what = f"it begins with seq {file.first}; file {before.wal_id} before it ends with {before.last}"
            yield Finding(wal.key(file.wal_id), what, None, Code.WAL_ORDER)


def unreplayed_rows(
    seqs: Iterable[WalSeqs], wal: WalStore, latest: Manifest, hidden: Iterable[HiddenSeqs]
) -> Iterator[Finding]:
    """Yield what hides rows of the WAL from replay: a replay point after them, or a sequence number above them.

    Args:
        seqs: the WAL files that could be read.
        wal: names them.
        latest: the newest manifest.
        hidden: sequence numbers that a version counts as flushed although no tree has changed.
    """
    files = sorted(seqs, key=lambda each: each.wal_id)
    after, last_l0_seq = int(latest.replay_after_wal_id), int(latest.last_l0_seq)
    # A restore in place goes back to older rows, and leaves the files of the newer ones.
    for file in files if not replaced_versions(latest) else ():
        if file.wal_id <= after and file.first > last_l0_seq:
            what = f"begins with seq {file.first}; last_l0_seq is {last_l0_seq}, and replay_after_wal_id {after}"
            yield Finding(wal.key(file.wal_id), what, None, Code.WAL_UNREPLAYED)
    for each in hidden:
        lost = [file for file in files if file.wal_id > after and file.last > each.after and file.first <= each.up_to]
        if lost:
            what = f"last_l0_seq rises from {each.after} to {each.up_to} without a flush: replay skips rows"
            yield Finding(each.key, f"{what} from WAL file {lost[0].wal_id} on", None, Code.WAL_UNREPLAYED)


def _packed(items: Iterable[tuple[int, T]], part_bytes: int, items_max: int) -> Iterator[tuple[T, ...]]:
    part: list[T] = []
    filled = 0
    for size, item in items:
        if part and (filled + size > part_bytes or len(part) >= items_max):
            yield tuple(part)
            part, filled = [], 0
        part.append(item)
        filled += size
    if part:
        yield tuple(part)
