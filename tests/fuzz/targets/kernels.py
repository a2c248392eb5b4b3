"""Kernels that read cached or stored blocks, in guarded memory: lookups, scans, merges and checksums.

Any answer will do for a block that no writer makes, as long as nothing outside of it is read; a block that decodes is
answered as plain Python answers.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from shale.engine.read.tree_lookup import TreeLookup
from shale.engine.scan.cached_rows import WantedRows, append_cached
from shale.errors import CorruptionError
from shale.format.blocks.checksums import damaged_blocks
from shale.format.blocks.decoder import StoredBlocks, open_blocks
from shale.format.blocks.plain import decode_block_plain, encode_block_plain
from shale.format.blocks.section import CRC_SIZE, seal_section
from shale.iter.visible_kernel import VisibleKernel
from shale.kernels.columns import address_of
from shale.kernels.dispatch import compiled
from shale.kernels.layout import scan as scan_layout
from shale.kernels.merge_rules import MergeRules
from shale.kernels.merge_status import MergeStatus
from shale.kernels.rows import Rows, entries_from_rows
from shale.sst.options import BLOCK_SIZE_MAX, SstOptions
from shale.types import FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Compression, Entry, Tree
from tests.fuzz import samples
from tests.fuzz.block_mutation import mutate_block
from tests.fuzz.oracle import PATH, attempt, require_equal, require_place
from tests.fuzz.target import Target
from tests.guarded import GuardedBytes, Side, guarded_array, guarded_numpy
from tests.unit.kernels.scan.views import FakeReader, expected_rows, view_of
from tests.unit.kernels.strategies import in_order
from tests.unit.sst.stored_runs import merged

_SEQ = 30
_LAST = b"\xff" * 20
_PROBES = (b"", b"\0", b"k1", b"k1\0", b"user/000001", b"user/0000010", b"user/9", b"z" * 300, b"\xff" * 9)


def _side(data: bytes) -> Side:
    return Side(data[0] & 1 if data else 0)


def _lookup(data: bytes) -> None:
    """Look keys up, one by one and together, and scan both ways, in an SST of one hostile block and one intact."""
    image = data[1:]
    if not image:
        return
    rows = attempt(lambda: decode_block_plain(image, 2))
    with guarded_numpy(_side(data)), GuardedBytes(_side(data)) as guarded:
        slots: Any = FakeReader()
        below = [row._replace(seq=0) for row in samples.rows(6) if not row.flags & FLAG_MERGE]
        views = [
            slots.add([Entry(b"\0", b"", 1, 0), Entry(_LAST, b"", 1, 0)], with_filter=False),
            slots.add(in_order(below)),
        ]
        slots.slot(views[0].sst).put_image(0, guarded.copy(image))
        tree = TreeLookup(Tree(l0=tuple(views)), slots)
        keys = [guarded.copy(key) for key in (*_PROBES, *_keys_of(rows))]
        record = tree.value_record(_SEQ)  # alive during the calls
        one_by_one = [compiled.lookup_value(key, address_of(record)) for key in keys]
        answers, _ = tree.find_values(keys, _SEQ)
        require_equal("lookups one by one and together", one_by_one, answers)
        scans = _scans(slots, views)
        del tree, slots
    if isinstance(rows, list) and _is_plain(rows, image):
        sources = [rows, below]
        expected = {row.key: row.value for row in expected_rows(sources, WantedRows(None, None, _SEQ, 1000))}
        if all(row.seq <= _SEQ for row in rows):
            require_equal("lookups and plain Python", answers, [expected.get(key) for key in keys])
            for wanted, found in scans:
                require_equal("a scan and plain Python", found, expected_rows(sources, wanted))


def _scans(slots: Any, views: list[Any]) -> list[tuple[WantedRows, list[Any]]]:
    """Return the scans that need nothing else than the kernel."""
    view = view_of(slots, [], Tree(l0=tuple(views)))
    scans = []
    for is_reversed in (False, True):
        wanted = WantedRows(None, None, _SEQ, 1000, is_reversed=is_reversed)
        found: list[Any] = []
        if append_cached(found, view, wanted) == scan_layout.END:
            scans.append((wanted, found))
    return scans


def _keys_of(rows: object) -> list[bytes]:
    return [row.key for row in rows[:40]] if isinstance(rows, list) else []


def _is_plain(rows: list[Entry], image: bytes) -> bool:
    """Return whether a block is as a writer makes it, without what lookups leave to others: operands and expiries."""
    return (
        bool(rows)
        and in_order(rows) == rows
        and rows[0].key >= b"\0"
        and rows[-1].key <= _LAST
        and not any(row.flags & (FLAG_MERGE | FLAG_EXPIRE_TS) for row in rows)
        and all(row.value == b"" for row in rows if row.flags & FLAG_TOMBSTONE)
        and (len(rows) == 1 or len(image) <= BLOCK_SIZE_MAX)  # offsets have 16 bits
        and encode_block_plain(rows) == image
    )


def _spans(image: bytes, version: int) -> StoredBlocks:
    section = seal_section(image, Compression.NONE)
    offsets = np.array([1000, 1000 + len(section)])
    return open_blocks(guarded_array(section).data, offsets, version=version, compression=Compression.NONE, path=PATH)


def _merge(data: bytes) -> None:
    """Merge a hostile block with an intact one, as a compaction does."""
    image, version = data[1:], 1 + (data[:1] in (b"\1", b"\3"))
    with guarded_numpy(_side(data)):

        def run() -> list[tuple[bytes, object]]:
            sources = [[_spans(image, version)], [_spans(encode_block_plain(samples.rows(20)), 2)]]
            return merged(sources, MergeRules(), SstOptions(block_size_bytes=200, min_filter_keys=2), 10**9)

        require_place(run, offset_max=1000 + len(image) + 4)


def _visible(data: bytes) -> None:
    """Show the rows of a hostile block beside those of an intact one, as a scan does."""
    image, version = data[1:], 1 + (data[:1] in (b"\1", b"\3"))
    with guarded_numpy(_side(data)):
        found = attempt(
            lambda: require_place(
                lambda: _shown([_spans(image, version), _spans(encode_block_plain(samples.rows(20)), 2)]),
                offset_max=1000 + len(image) + 4,
            )
        )
    rows = attempt(lambda: decode_block_plain(image, version))
    if isinstance(rows, list) and in_order(rows) == rows:
        require_equal("a kernel and plain Python find a block sound", isinstance(found, CorruptionError), False)
        keys = [row.key for part in found for row in entries_from_rows(part)]
        require_equal("the keys of a scan and sorted ones", keys, sorted(keys))


def _shown(chunks: list[StoredBlocks]) -> list[Rows]:
    kernel = VisibleKernel(len(chunks), _SEQ)
    for number, chunk in enumerate(chunks):
        kernel.begin(number, chunk)
    taken = []
    while True:
        status = kernel.run()
        if status is MergeStatus.NEED_INPUT:
            kernel.feed(None)
            continue
        taken.append(kernel.take())
        if status is MergeStatus.DONE:
            return taken


def _checksums(data: bytes) -> None:
    """Open stored blocks whose bounds the input has: the first byte says how many, two more bytes each, then blocks."""
    count = data[0] % 6 if data else 0
    cuts = sorted(int.from_bytes(data[1 + 2 * each : 3 + 2 * each], "little") for each in range(count))
    stored = data[1 + 2 * count :]
    bounds = [0, *(cut % (len(stored) + 1) for cut in cuts), len(stored)]
    bounds = sorted(bounds)
    plain = [_intact_image(stored[start:end]) for start, end in pairwise(bounds)]
    with guarded_numpy(_side(data)):
        array = guarded_array(stored)
        address = address_of(array)
        for (start, end), image in zip(pairwise(bounds), plain, strict=True):
            found = compiled.open_image(address + start, end - start)
            require_equal("open_image and plain", found if type(found) is bytes else None, image)
        opened: list[bytes] = [b""] * len(plain)
        spans = np.array(list(pairwise(bounds)), np.int64)
        done = compiled.open_images(opened, len(spans), address, address_of(spans))
        wanted = next((number for number, image in enumerate(plain) if image is None), len(plain))
        require_equal("open_images and plain", opened[:done], plain[:wanted])
        if len(set(bounds)) == len(bounds):
            damaged = damaged_blocks(array.data, np.array(bounds, np.int64) + 1000, PATH)
            require_equal("damaged blocks", damaged, [at for at, image in enumerate(plain) if image is None])


def _intact_image(stored: bytes) -> bytes | None:
    from zlib import crc32

    payload, check = stored[:-CRC_SIZE], stored[-CRC_SIZE:]
    return payload if len(check) == CRC_SIZE and crc32(payload).to_bytes(4, "big") == check else None


def _stored() -> list[bytes]:
    found = []
    for images in ([], [b""], [b"a", b"", bytes(300)], [samples.sections()["blocks"][1]] * 3):
        sections = [seal_section(image, Compression.NONE) for image in images]
        ends = np.cumsum([0, *map(len, sections)])[1:-1].tolist()
        cuts = b"".join(end.to_bytes(2, "little") for end in ends)
        found.append(bytes([len(ends)]) + cuts + b"".join(sections))
    return found


def _blocks() -> list[bytes]:
    return [bytes([side]) + image for image in samples.sections()["blocks"] for side in (0, 1)]


def _either_version() -> list[bytes]:
    return [bytes([1 + side]) + image for image in samples.blocks_v1() for side in (1, 3)] + _blocks()


def targets() -> list[Target]:
    lookups = (
        "shale.engine.read.tree_lookup",
        "shale.engine.scan.cached_rows",
        "shale.sst.slot",
        "shale.format.blocks.plain",
    )
    merges = ("shale.format.blocks.merge", "shale.format.blocks.cursor_input", "shale.format.blocks.cursor_order")

    def mutate(rng: Any, data: bytes) -> bytes:
        return data[:1] + mutate_block(rng, data[1:])

    return [
        Target("kernel lookup and scan", _lookup, _blocks, (), lookups, mutate, weight=2),
        Target("kernel merge", _merge, _either_version, (CorruptionError,), merges, mutate, weight=2),
        Target("kernel visible rows", _visible, _either_version, (), ("shale.iter.visible_kernel",), mutate, weight=2),
        Target(
            "kernel checksums",
            _checksums,
            _stored,
            (),
            ("shale.format.blocks.checksums", "shale.format.blocks.section"),
        ),
    ]
