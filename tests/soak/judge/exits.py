"""Which exit codes the injected faults explain (docs/reference/exit-codes.md)."""

import signal
from collections.abc import Sequence

from tests.soak.plan.faults import WRITERS
from tests.soak.run.events import Events
from tests.soak.stack.processes import PREVIOUS, Exit

FENCED, UNREACHABLE, TRY_AGAIN, CORRUPT = 80, 69, 75, 65
OLD_LISTS = "store-old-lists"
"""Shale demands lists that show every write (docs/reference/protocol.md 0.2).  The current version repeats a list that
lacks what exists.  Earlier versions took that for a lost file and ended."""
STARTED = "daemon.started"
MARGIN_S = 45.0
"""A daemon may notice a fault some time after its end: a frozen one that wakes, or a store that timed out."""
KILLS = frozenset({"kill", "rival-writer"})
STOPS = frozenset({"stop", "other-version", "wheel-writes-and-compacts"})


def unexplained(exits: Sequence[Exit], events: Events, judged: Sequence[str]) -> list[str]:
    """Return the ends of daemons that no injected fault explains."""
    reasons = [(each, _why_not(each, events)) for each in exits if each.node in judged]
    return [f"{each.instance} ended with {each.code}: {why}" for each, why in reasons if why]


def _why_not(end: Exit, events: Events) -> str:
    """Return why an exit code is wrong; empty if it is right."""
    active = {event.kind for event in events.active(end.at, MARGIN_S)}
    if end.injected in KILLS and end.code == -signal.SIGKILL:
        return ""
    if end.code == 0:
        return "" if end.injected in STOPS else "it was not stopped"
    if end.code == FENCED:
        return "" if end.node in (*WRITERS, "compactor") else "only a writer and a coordinator are fenced"
    if end.code in (UNREACHABLE, TRY_AGAIN):
        return "" if active else "no fault was active"
    if end.code == CORRUPT:
        is_old_list = OLD_LISTS in active and end.version == PREVIOUS
        return "" if is_old_list else "nothing damages the database"
    if end.code == -signal.SIGTERM and end.injected in STOPS:
        return "" if not end.has_logged(STARTED) else "it does not end by the signal once it has started"
    return "no fault explains this code"
