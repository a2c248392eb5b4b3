"""Estimated progress of a compaction, from what its worker has published (docs/reference/protocol.md 6.13).

The format has no byte counters, only the finished SSTs of each range.  An input counts as read once the outputs have
passed its last key.  Progress is the larger one of written and read bytes: written bytes underestimate merges that
drop many rows, and read bytes underestimate merges of huge inputs.
"""

from collections.abc import Sequence

from shale.core.lazy_dataclass import dataclass
from shale.types import Compaction, CompactionStatus, Sst, SstView, Subcompaction

_DONE = (CompactionStatus.COMPACTED, CompactionStatus.COMPLETED)
_RUNNING_MAX = 99.9


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionProgress:
    """Estimates in SSTs and bytes; ``None`` where the inputs are not known any more."""

    input_ssts_processed: int | None
    input_ssts: int | None
    output_ssts: int
    output_bytes: int
    bytes_processed: int
    bytes_total: int | None
    percentage: float | None

    def completion_ms(self, since_ms: int, bytes_then: int, now_ms: int) -> int | None:
        """Extrapolate the time of completion from the progress since ``since_ms``; ``None`` if there is none."""
        gained, elapsed_ms = self.bytes_processed - bytes_then, now_ms - since_ms
        if self.bytes_total is None or gained <= 0 or elapsed_ms <= 0:
            return None
        return now_ms + (self.bytes_total - self.bytes_processed) * elapsed_ms // gained


def progress_of(entry: Compaction, inputs: Sequence[SstView] | None) -> CompactionProgress:
    """Return the progress of a stored entry.

    Args:
        inputs: the views of its sources, if known.
    """
    outputs = outputs_of(entry)
    written = sum(sst.estimated_size_bytes for sst in outputs)
    done = entry.status in _DONE
    if inputs is None:
        return CompactionProgress(
            input_ssts_processed=None,
            input_ssts=None,
            output_ssts=len(outputs),
            output_bytes=written,
            bytes_processed=written,
            bytes_total=None,
            percentage=100.0 if done else None,
        )
    total = sum(view.sst.estimated_size_bytes for view in inputs)
    ranges = entry.ctx.subcompactions if entry.ctx is not None else ()
    passed = list(inputs) if done else passed_inputs(inputs, ranges)
    read = sum(view.sst.estimated_size_bytes for view in passed)
    processed = total if done else min(max(written, read), total)
    share = 100.0 * processed / total if total else 0.0
    return CompactionProgress(
        input_ssts_processed=len(passed),
        input_ssts=len(inputs),
        output_ssts=len(outputs),
        output_bytes=written,
        bytes_processed=processed,
        bytes_total=total,
        percentage=100.0 if done else round(min(share, _RUNNING_MAX), 1),
    )


def passed_inputs(inputs: Sequence[SstView], ranges: Sequence[Subcompaction]) -> list[SstView]:
    """Return the inputs that the outputs have passed: nothing of them is read again."""
    return [view for view in inputs if _is_passed(view, ranges)]


def outputs_of(entry: Compaction) -> tuple[Sst, ...]:
    """Return the finished SSTs in key order: of the result, or of the published progress."""
    if entry.ctx is None:
        return entry.output_ssts
    return tuple(sst for sub in entry.ctx.subcompactions for sst in sub.output_ssts)


def _is_passed(view: SstView, ranges: Sequence[Subcompaction]) -> bool:
    """Return whether the outputs of all ranges that overlap the view have passed its last key."""
    touched = [sub for sub in ranges if not view.effective_range.intersect(sub.range).is_empty]
    return bool(touched) and all(_has_passed(sub, view) for sub in touched)


def _has_passed(sub: Subcompaction, view: SstView) -> bool:
    last = sub.output_ssts[-1].info.last_entry if sub.output_ssts else None
    end = view.effective_range.end.key
    return last is not None and end is not None and last >= end
