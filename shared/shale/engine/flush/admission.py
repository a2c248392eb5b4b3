"""Decides which frozen memtables may be uploaded now: L0 has room for their SSTs, and few uploads are under way."""

from collections import Counter
from collections.abc import Iterable, Mapping

from shale.engine.flush.planner import table_stall_reason
from shale.engine.flush.writer_manifest import WriterManifest
from shale.engine.memtable.frozen_table import FrozenTable, UploadState
from shale.engine.options import DbOptions
from shale.engine.write.durability import DurabilityTracker
from shale.engine.write.instruments import WriterInstruments
from shale.env import Env
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Tree

_WARN_AFTER_S = 10.0
_WARN_INTERVAL_S = 60.0
_HINT = "no compaction makes room: start `shale compactor`, or open with compactor=True"
log = get_logger("memtable")


class L0Admission:
    """Admits frozen tables to L0, strictly in order.

    Args:
        manifest: its trees show how full L0 is.
        durability: its ``changed`` is notified when a stall begins or ends.
        options: limits of L0 and of parallel uploads.
        instruments: counts stalls.
        env: the clock.
    """

    def __init__(
        self,
        manifest: WriterManifest,
        durability: DurabilityTracker,
        options: DbOptions,
        instruments: WriterInstruments,
        env: Env,
    ) -> None:
        self.stall_reason: str | None = None
        """Why the oldest waiting table must wait; ``None``: L0 has room."""
        self._manifest = manifest
        self._durability = durability
        self._options = options
        self._instruments = instruments
        self._env = env
        self._stalled_s = self._warn_s = 0.0
        self._ignores_stalls = False

    def ignore_stalls(self) -> None:
        """Admit tables although L0 is full: at a close without a WAL their rows are nowhere else."""
        self._ignores_stalls = True

    def admit(self, tables: Iterable[FrozenTable]) -> list[FrozenTable]:
        """Return the tables whose upload must start now; the caller starts it.

        Args:
            tables: all frozen tables, oldest first.
        """
        admitted: list[FrozenTable] = []
        running = 0
        trees: dict[bytes, Tree] = {}
        reserved: Counter[bytes] = Counter()
        self._durability.stall = None
        for frozen in tables:
            if frozen.state is not UploadState.WAITING:
                running += frozen.state is UploadState.UPLOADING
                reserved.update(frozen.segments)
                continue
            if not frozen.sorted or running >= self._options.l0_flush_parallelism:
                return admitted
            trees = trees or dict(self._manifest.current.trees())
            if self._is_stalled(trees, reserved, frozen):
                return admitted
            admitted.append(frozen)
            running += 1
            reserved.update(frozen.segments)
        self.stall_reason = None
        self._instruments.l0_stalled(0)
        return admitted

    def _is_stalled(self, trees: Mapping[bytes, Tree], reserved: Mapping[bytes, int], frozen: FrozenTable) -> bool:
        reason = table_stall_reason(
            trees,
            reserved,
            frozen.segments,
            l0_max_ssts=self._options.l0_max_ssts,
            l0_max_ssts_per_key=self._options.l0_max_ssts_per_key,
        )
        if reason is not None:
            fullest = max(len(trees[prefix].l0) if prefix in trees else 0 for prefix in frozen.segments)
            limit = self._options.l0_max_ssts if reason == "num_ssts" else self._options.l0_max_ssts_per_key
            self._durability.stall = f"L0 is full, {fullest} of {limit} SSTs, and {_HINT}"
            self._warn_in_time(reason, fullest, limit, self._durability.stall)
        if reason != self.stall_reason:
            self.stall_reason = reason
            self._instruments.l0_stalled(0 if reason is None else 1)
            self._durability.changed.notify()
        return reason is not None and not self._ignores_stalls

    def _warn_in_time(self, reason: str, fullest: int, limit: int, hint: str) -> None:
        """Warn of a stall that lasts: a running compaction ends most of them after moments."""
        now_s = self._env.clock.monotonic_s()
        if self.stall_reason is None:
            self._instruments.stalled(reason)
            self._stalled_s, self._warn_s = now_s, now_s + _WARN_AFTER_S
        if now_s < self._warn_s:
            return
        self._warn_s = now_s + _WARN_INTERVAL_S
        log.warning(
            Event.MEMTABLE_FLUSH_STALLED,
            l0_ssts=fullest,
            limit=limit,
            type=reason,
            duration_ms=round(1000 * (now_s - self._stalled_s)),
            hint=hint,
        )
