"""Merging stored blocks without unpacking them into columns: what a compaction without functions of users does.

``BlockMerge`` is the input side, fed span by span; the output side is ``shale.format.block_writer``.
"""

from typing import TYPE_CHECKING

import numpy as np

from shale.errors import CorruptionError
from shale.format.block import StoredBlocks
from shale.format.block_input import BlockInput
from shale.kernels import block_cursor as cursors
from shale.kernels import merge_blocks as kernel
from shale.kernels.columns import SLACK, address_of
from shale.kernels.fuse import rule_words
from shale.kernels.merge_steps import Step
from shale.kernels.rules import Rules

if TYPE_CHECKING:
    from shale.kernels.rows import U8

_GRAVES_FIRST = 64


class BlockMerge:
    """The state of one merge of ``source_count`` sources of blocks, in order of precedence."""

    def __init__(self, source_count: int, rules: Rules) -> None:
        self._cursors = np.zeros((max(source_count, 1), cursors.CURSOR_WORDS), np.int64)
        self._order = np.zeros(max(source_count, 1), np.int64)
        self._state = np.zeros(kernel.STATE_WORDS, np.int64)
        self._rules = rule_words(rules)
        self._addresses = tuple(map(address_of, (self._cursors, self._order, self._rules, self._state)))
        self._inputs: list[BlockInput | None] = [None] * source_count
        self._starved: int | None = None
        self._keys: U8 = np.zeros((3, 0), np.uint8)
        self._reserve_keys(0)
        self._graves: U8 = np.zeros(0, np.uint8)
        self.reserve_graves()

    @property
    def starved(self) -> int | None:
        """The source that used up its blocks, until it is fed."""
        return self._starved

    def run(self, blocks: int, sink: int) -> Step:
        """Call the kernel until something has to be done about output or input.

        Args:
            blocks: address of the state of ``block_encode``.
            sink: address of the words that say where output goes.

        Raises:
            CorruptionError: a source is malformed; with its place.
        """
        self._state[kernel.NOTED] = 0
        while True:
            status = int(kernel.merge_blocks(*self._addresses, blocks, sink))
            if status >= kernel.OUT_OF_ORDER:
                raise self._corrupt(int(self._state[kernel.SOURCE]), status)
            if status != kernel.NEED_GRAVES:
                step = Step(status)
                if step is Step.STARVED:
                    self._starved = int(self._state[kernel.SOURCE])
                return step
            self.reserve_graves()

    def begin(self, source: int, blocks: StoredBlocks) -> bool:
        """Give a source its first blocks; ``False``: no row of them is visible, so it needs others.

        Raises:
            CorruptionError: the blocks are malformed.
        """
        if not self._load(source, blocks):
            return False
        live = int(self._state[kernel.LIVE])
        self._order[1 : live + 1] = self._order[:live].copy()
        self._order[0] = source
        self._state[kernel.LIVE] = live + 1
        kernel.insert(*self._addresses[:2], live + 1)
        return True

    def feed(self, blocks: StoredBlocks | None) -> bool:
        """Give the starved source its next blocks, or its end; ``False``: no row of them is visible.

        Raises:
            CorruptionError: the blocks are malformed.
        """
        source = self._starved
        assert source is not None, "only a starved source is fed"
        live = int(self._state[kernel.LIVE])
        if blocks is not None:
            if not self._load(source, blocks):
                return False
            kernel.insert(*self._addresses[:2], live)
        else:
            self._order[: live - 1] = self._order[1:live].copy()
            self._state[kernel.LIVE] = live - 1
            self._inputs[source] = None
        self._starved = None
        return True

    def take_expired(self) -> tuple[int, int]:
        """Values and operands that expired since the last call."""
        words = self._state[kernel.EXPIRED_VALUES : kernel.EXPIRED_OPERANDS + 1]
        values, operands = words.tolist()
        words[:] = 0
        return values, operands

    def begin_file(self) -> None:
        """What is written from now on begins a file: nothing stands before it."""
        self._state[kernel.WRITTEN_LEN] = -1
        for word in (kernel.ROWS, kernel.KEYS_LEN, kernel.VALUES_LEN):
            self._state[word] = 0

    @property
    def hashed(self) -> int:
        """Hashes that the last call has noted."""
        return int(self._state[kernel.NOTED])

    @property
    def longest(self) -> int:
        """After ``NEED_NOTES``: the length of the next key."""
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

    def reserve_graves(self) -> None:
        """Make more room for tombstones of one key."""
        room = max(_GRAVES_FIRST, 2 * int(self._state[kernel.GRAVES_MAX]))
        graves = np.zeros(room * kernel.GRAVE_BYTES, np.uint8)
        graves[: len(self._graves)] = self._graves
        self._graves = graves
        self._state[kernel.GRAVES] = address_of(graves)
        self._state[kernel.GRAVES_MAX] = room

    def _load(self, source: int, blocks: StoredBlocks) -> bool:
        longest = blocks.longest
        self._inputs[source] = BlockInput(blocks, self._cursors[source], longest)
        self._reserve_keys(longest)
        status = int(cursors.first_row(self._addresses[0] + source * cursors.CURSOR_BYTES))
        if status not in (cursors.ROW, cursors.USED_UP):
            raise self._corrupt(source, kernel.BAD_BLOCK + status)
        return status == cursors.ROW

    def _reserve_keys(self, size: int) -> None:
        """Room for the current key and the one written last, which take turns, and for the first one."""
        if size + SLACK <= self._keys.shape[1]:
            return
        state = self._state
        words = (kernel.KEY_ONE, kernel.KEY_TWO, kernel.FIRST_KEY)
        keys = np.zeros((len(words), 2 * size + 64), np.uint8)
        met, written = (int(state[word] == state[kernel.KEY_TWO]) for word in (kernel.MET, kernel.WRITTEN))
        # Only the keys: after a huge value most of this room was never touched, and takes no memory.
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
