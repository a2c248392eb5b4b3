"""Merges stored blocks without unpacking them into columns, for compactions without functions of users.

``BlockMerge`` is the input side, which takes spans of blocks; the output side is ``shale.format.blocks.writer``.
"""

from typing import TYPE_CHECKING

import numpy as np

from shale.errors import CorruptionError
from shale.format.blocks.cursor_input import BlockInput
from shale.format.blocks.cursor_order import CursorOrder
from shale.format.blocks.decoder import StoredBlocks
from shale.kernels.columns import SLACK, address_of
from shale.kernels.dispatch import compiled
from shale.kernels.layout import cursor as cursors
from shale.kernels.layout import merge_blocks as kernel
from shale.kernels.layout.merge_columns import encode_rules
from shale.kernels.merge_rules import MergeRules
from shale.kernels.merge_status import MergeStatus

if TYPE_CHECKING:
    from shale.kernels.rows import U8

_PENDING_TOMBSTONES_FIRST = 64


class BlockMerge:
    """The state of one merge of ``source_count`` sources of blocks, in order of precedence."""

    def __init__(self, source_count: int, rules: MergeRules) -> None:
        self._cursors = np.zeros((max(source_count, 1), cursors.CURSOR_WORDS), np.int64)
        self._order = np.zeros(max(source_count, 1), np.int64)
        self._state = np.zeros(kernel.STATE_WORDS, np.int64)
        self._rules = encode_rules(rules)
        self._addresses = (
            address_of(self._cursors),
            address_of(self._order),
            address_of(self._rules),
            address_of(self._state),
        )
        self._cursor_order = CursorOrder(self._addresses[0], self._order, self._state)
        self._inputs: list[BlockInput | None] = [None] * source_count
        self._source_needing_input: int | None = None
        self._keys: U8 = np.zeros((3, 0), np.uint8)
        self._reserve_keys(0)
        self._tombstones: U8 = np.zeros(0, np.uint8)
        self.reserve_tombstones()

    @property
    def source_needing_input(self) -> int | None:
        """The source that has no blocks left, until ``feed`` is called."""
        return self._source_needing_input

    def run(self, blocks: int, sink: int) -> MergeStatus:
        """Call the kernel until it needs input or output space.

        Args:
            blocks: address of the state of ``encode_blocks``.
            sink: address of the words that describe the output.

        Raises:
            CorruptionError: a source is malformed; with path and offset.
        """
        self._state[kernel.NOTED] = 0
        while True:
            status = compiled.merge_blocks(*self._addresses, blocks, sink)
            if status >= kernel.OUT_OF_ORDER:
                raise self._corrupt(int(self._state[kernel.SOURCE]), status)
            if status != kernel.NEED_TOMBSTONE_SPACE:
                step = MergeStatus(status)
                if step is MergeStatus.NEED_INPUT:
                    self._source_needing_input = int(self._state[kernel.SOURCE])
                return step
            self.reserve_tombstones()

    def release_used(self) -> None:
        """Release the blocks of the source that needs input, so that they do not stay until others are read."""
        source = self._source_needing_input
        assert source is not None, "no source needs input"
        self._inputs[source] = None

    def begin(self, source: int, blocks: StoredBlocks) -> bool:
        """Set the first blocks of a source; return ``False`` if no row of them is visible, so it needs others.

        Raises:
            CorruptionError: the blocks are malformed.
        """
        if not self._load(source, blocks):
            return False
        self._cursor_order.add(source)
        return True

    def feed(self, blocks: StoredBlocks | None) -> bool:
        """Set the next blocks of the source that needs input, or end it; return ``False`` if no row is visible.

        Raises:
            CorruptionError: the blocks are malformed.
        """
        source = self._source_needing_input
        assert source is not None, "no source needs input"
        if blocks is not None:
            if not self._load(source, blocks):
                return False
            self._cursor_order.sort_first()
        else:
            self._cursor_order.remove_first()
            self._inputs[source] = None
        self._source_needing_input = None
        return True

    def take_expired(self) -> tuple[int, int]:
        """Return the numbers of values and operands that expired since the last call."""
        words = self._state[kernel.EXPIRED_VALUES : kernel.EXPIRED_OPERANDS + 1]
        values, operands = words.tolist()
        words[:] = 0
        return values, operands

    def begin_file(self) -> None:
        """Begin a file: the next row is its first."""
        self._state[kernel.WRITTEN_LEN] = -1
        for word in (kernel.ROWS, kernel.KEYS_LEN, kernel.VALUES_LEN):
            self._state[word] = 0

    @property
    def hashed(self) -> int:
        """The number of hashes that the last call wrote."""
        return int(self._state[kernel.NOTED])

    @property
    def longest(self) -> int:
        """The length of the next key, after ``NEED_METADATA_SPACE``."""
        return int(self._state[kernel.LONGEST])

    @property
    def rows(self) -> int:
        """Rows of the file so far."""
        return int(self._state[kernel.ROWS])

    @property
    def keys_len(self) -> int:
        """Bytes of all their keys."""
        return int(self._state[kernel.KEYS_LEN])

    @property
    def values_len(self) -> int:
        """Bytes of all their values."""
        return int(self._state[kernel.VALUES_LEN])

    @property
    def last_seq(self) -> int:
        """The sequence number of the row written last."""
        return int(self._state[kernel.WRITTEN_SEQ].astype(np.uint64))

    @property
    def first_key(self) -> bytes:
        """The key of the file's first row."""
        return self._keys[2, : self._state[kernel.FIRST_LEN]].tobytes()

    @property
    def last_key(self) -> bytes:
        """The key of the row written last."""
        row = int(self._state[kernel.WRITTEN] == self._state[kernel.KEY_TWO])
        return self._keys[row, : self._state[kernel.WRITTEN_LEN]].tobytes()

    def reserve_tombstones(self) -> None:
        """Enlarge the buffer for tombstones of one key that may still be dropped."""
        capacity = max(_PENDING_TOMBSTONES_FIRST, 2 * int(self._state[kernel.PENDING_TOMBSTONES_MAX]))
        tombstones = np.zeros(capacity * kernel.PENDING_TOMBSTONE_BYTES, np.uint8)
        tombstones[: len(self._tombstones)] = self._tombstones
        self._tombstones = tombstones
        self._state[kernel.PENDING_TOMBSTONES] = address_of(tombstones)
        self._state[kernel.PENDING_TOMBSTONES_MAX] = capacity

    def _load(self, source: int, blocks: StoredBlocks) -> bool:
        longest = blocks.longest
        self._inputs[source] = BlockInput(blocks, self._cursors[source], longest)
        self._reserve_keys(longest)
        status = int(compiled.first_row(self._addresses[0] + source * cursors.CURSOR_BYTES))
        if status not in (cursors.ROW, cursors.USED_UP):
            raise self._corrupt(source, kernel.BAD_BLOCK + status)
        return status == cursors.ROW

    def _reserve_keys(self, size: int) -> None:
        """Enlarge the buffers for the current key and the one written last, which alternate, and for the first key."""
        if size + SLACK <= self._keys.shape[1]:
            return
        state = self._state
        words = (kernel.KEY_ONE, kernel.KEY_TWO, kernel.FIRST_KEY)
        keys = np.zeros((len(words), 2 * size + 64), np.uint8)
        met, written = (int(state[word] == state[kernel.KEY_TWO]) for word in (kernel.MET, kernel.WRITTEN))
        # Copy only the keys: after a huge value most pages of the buffers were never touched and take no memory.
        for row, length in ((met, kernel.MET_LEN), (written, kernel.WRITTEN_LEN), (2, kernel.FIRST_LEN)):
            end = max(int(state[length]), 0)
            keys[row, :end] = self._keys[row, :end]
        for word, key in zip(words, keys, strict=True):
            state[word] = address_of(key)
        state[kernel.MET] = state[words[met]]
        state[kernel.WRITTEN] = state[words[written]]
        self._keys = keys

    def _corrupt(self, source: int, status: int) -> CorruptionError:
        fed = self._inputs[source]
        assert fed is not None, "only a source with blocks can be malformed"
        return fed.corrupt(cursors.OUT_OF_ORDER if status == kernel.OUT_OF_ORDER else status - kernel.BAD_BLOCK)
