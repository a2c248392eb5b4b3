"""Checking a request before it is stored: the coordinator would only call it Failed later (docs/protocol.md 6.13).

The check is the best that can be known from outside.  The coordinator checks again and has the last word.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from shale.compaction.advice import advice
from shale.compaction.entries import with_entry
from shale.compaction.requests import CompactionRequest, resolve
from shale.compaction.specs import describe
from shale.compaction.validation import Stage, validate
from shale.errors import InvalidCompaction
from shale.types import Compaction, Compactions, CompactionStatus, Manifest, Ulid


def plan_submission(
    manifest: Manifest, compactions: Compactions, request: CompactionRequest, id_of: Callable[[int], Ulid]
) -> tuple[Compaction, ...]:
    """The entries that a request adds, one per spec.

    Args:
        manifest: read after ``compactions``.
        id_of: the id of the n-th entry; the same one whenever it is asked.

    Raises:
        InvalidCompaction: a spec breaks a rule, or touches what another active compaction touches; says which, where,
            and what would be valid.
    """
    entries: list[Compaction] = []
    state = as_scheduled(compactions)
    for index, spec in enumerate(resolve(request, manifest, compactions)):
        entry = Compaction(id=id_of(index), spec=spec)
        check_entry(manifest, state, entry)
        entries.append(entry)
        state = with_entry(state, replace(entry, status=CompactionStatus.SCHEDULED))
    return tuple(entries)


def check_entry(manifest: Manifest, compactions: Compactions, entry: Compaction) -> None:
    """V1–V13, where other Submitted entries count as if they were scheduled already: one of both would fail.

    Raises:
        InvalidCompaction: the first rule that is broken.
    """
    try:
        validate(manifest, as_scheduled(compactions), entry, Stage.SUBMITTED)
    except InvalidCompaction as error:
        message = str(error).removeprefix(f"{error.rule}: ")
        hint = advice(error.rule, manifest, compactions, entry.spec)
        parts: Sequence[str] = [f"{describe(entry.spec)}: {message}", *([hint] if hint else [])]
        raise InvalidCompaction(error.rule, "; ".join(parts)) from error


def as_scheduled(compactions: Compactions) -> Compactions:
    """The state once the coordinator has accepted everything that waits."""
    entries = tuple(
        replace(entry, status=CompactionStatus.SCHEDULED) if entry.status is CompactionStatus.SUBMITTED else entry
        for entry in compactions.entries
    )
    return replace(compactions, entries=entries)
