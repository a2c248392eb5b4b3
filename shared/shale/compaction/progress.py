"""How far a compaction is, estimated from what its worker has published (docs/protocol.md 6.13).

Nothing in the format counts bytes.  What is known are the finished SSTs of every range, so an input counts as read
where the outputs have passed its last key, and the share is the larger one of both: merges that drop much would look
slow by their outputs, merges of huge inputs by whole inputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shale.types import Compaction, CompactionStatus, Sst, SstView, Subcompaction

_DONE = (CompactionStatus.COMPACTED, CompactionStatus.COMPLETED)
_RUNNING_MAX = 99.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Estimates in bytes of SSTs; ``None`` where the inputs are not known any more."""

    input_ssts_processed: int | None
    input_ssts: int | None
    output_ssts: int
    output_bytes: int
    bytes_processed: int
    bytes_total: int | None
    percentage: float | None

    def completion_ms(self, since_ms: int, bytes_then: int, now_ms: int) -> int | None:
        """When it ends if it goes on as it did since then; ``None`` while that cannot be told."""
        gained, elapsed_ms = self.bytes_processed - bytes_then, now_ms - since_ms
        if self.bytes_total is None or gained <= 0 or elapsed_ms <= 0:
            return None
        return now_ms + (self.bytes_total - self.bytes_processed) * elapsed_ms // gained


def progress_of(entry: Compaction, inputs: Sequence[SstView] | None) -> Progress:
    """The progress of a stored entry.

    Args:
        inputs: the views behind its sources, if they are known.
    """
    outputs = outputs_of(entry)
    written = sum(sst.estimated_size_bytes for sst in outputs)
    done = entry.status in _DONE
    if inputs is None:
        return Progress(
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
    passed = list(inputs) if done else [view for view in inputs if _is_passed(view, ranges)]
    read = sum(view.sst.estimated_size_bytes for view in passed)
    processed = total if done else min(max(written, read), total)
    share = 100.0 * processed / total if total else 0.0
    return Progress(
        input_ssts_processed=len(passed),
        input_ssts=len(inputs),
        output_ssts=len(outputs),
        output_bytes=written,
        bytes_processed=processed,
        bytes_total=total,
        percentage=100.0 if done else round(min(share, _RUNNING_MAX), 1),
    )


def outputs_of(entry: Compaction) -> tuple[Sst, ...]:
    """The SSTs that are finished: of the result, or of the published progress, in key order."""
    if entry.ctx is None:
        return entry.output_ssts
    return tuple(sst for sub in entry.ctx.subcompactions for sst in sub.output_ssts)


def _is_passed(view: SstView, ranges: Sequence[Subcompaction]) -> bool:
    """Whether the outputs of every range that shows some of the view have reached its last key there."""
    touched = [sub for sub in ranges if not view.effective_range.intersect(sub.range).is_empty]
    return bool(touched) and all(_has_passed(sub, view) for sub in touched)


def _has_passed(sub: Subcompaction, view: SstView) -> bool:
    last = sub.output_ssts[-1].info.last_entry if sub.output_ssts else None
    end = view.effective_range.end.key
    return last is not None and end is not None and last >= end
