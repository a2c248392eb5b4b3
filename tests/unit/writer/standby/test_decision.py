"""What a standby does next, for each thing that it can have seen."""

import pytest

from shale_writer.standby.decision import Action, ActiveState, Observed, Reason, StandbyPolicy, decide

POLICY = StandbyPolicy(takeover_after_s=6.0, unsigned_takeover_after_s=60.0)
WAIT = (Action.WAIT, None)
CHALLENGE = (Action.CHALLENGE, None)
SILENT = (Action.TAKE_OVER, Reason.SILENT)


def seen(
    state: ActiveState = ActiveState.SIGNED,
    *,
    alive: float = 0.0,
    changed: float = 0.0,
    challenged: float | None = None,
    read: float = 0.0,
) -> Observed:
    return Observed(state=state, alive_s=alive, changed_s=changed, challenged_s=challenged, read_s=read)


@pytest.mark.parametrize(("state", "reason"), [(ActiveState.NONE, Reason.NEW), (ActiveState.CLOSED, Reason.CLOSED)])
def test_without_an_active_writer_it_takes_over_at_once(state: ActiveState, reason: Reason) -> None:
    assert decide(seen(state), POLICY, 0.0) == (Action.TAKE_OVER, reason)


def test_recent_evidence_is_enough() -> None:
    assert decide(seen(alive=10.0, read=11.9), POLICY, 11.9) == WAIT


def test_a_silent_writer_is_challenged_once() -> None:
    assert decide(seen(alive=10.0, read=12.0), POLICY, 12.0) == CHALLENGE
    assert decide(seen(alive=10.0, challenged=12.1, read=13.0), POLICY, 13.0) == WAIT


def test_a_writer_that_does_not_answer_a_challenge_is_replaced() -> None:
    assert decide(seen(alive=10.0, challenged=12.1, read=16.0), POLICY, 16.0) == WAIT
    assert decide(seen(alive=10.0, challenged=12.1, read=16.2), POLICY, 16.2) == SILENT


def test_it_has_time_to_answer_however_long_it_was_silent() -> None:
    """A standby that was suspended itself has missed the evidence of hours."""
    assert decide(seen(alive=10.0, read=9000.0), POLICY, 9000.0) == CHALLENGE
    assert decide(seen(alive=10.0, challenged=9000.1, read=9003.0), POLICY, 9003.0) == WAIT
    assert decide(seen(alive=10.0, challenged=9000.1, read=9004.2), POLICY, 9004.2) == SILENT


def test_no_time_passes_while_the_store_does_not_answer_the_standby() -> None:
    assert decide(seen(alive=10.0, challenged=12.1, read=12.5), POLICY, 500.0) == WAIT


def test_an_unsigned_writer_is_replaced_only_after_a_long_time_without_a_change() -> None:
    unsigned = ActiveState.UNSIGNED
    assert decide(seen(unsigned, changed=10.0, read=69.0), POLICY, 69.0) == WAIT
    assert decide(seen(unsigned, changed=10.0, read=70.0), POLICY, 70.0) == (Action.TAKE_OVER, Reason.UNSIGNED)
    never = StandbyPolicy(unsigned_takeover_after_s=None)
    assert decide(seen(unsigned, changed=10.0, read=9000.0), never, 9000.0) == WAIT
