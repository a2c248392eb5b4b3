"""Sequence trackers inside SlateDB's manifests, and the examples of docs/reference/format.md 14."""

from pathlib import Path

import pytest

from shale.format.manifest import decode_manifest
from shale.format.sequence_tracker import SequenceTracker
from tests.golden_files import golden, label

THREE_POINTS = bytes.fromhex("010300000000000003000000000000000180f1f28000000003000000006b016ad79e4080")


@pytest.mark.parametrize("path", golden("*.manifest"), ids=label)
def test_a_tracker_is_written_again_byte_for_byte(path: Path) -> None:
    tracker = decode_manifest(path.read_bytes()).sequence_tracker
    assert SequenceTracker.decode(tracker).encode() == tracker


def test_the_documented_tracker() -> None:
    tracker = SequenceTracker.decode(THREE_POINTS)
    assert tracker.points == [(1, 1795254999), (2, 1795255059), (1000, 1795255121)]
    assert tracker.encode() == THREE_POINTS


def test_a_jump_beyond_32_bits_reads_as_what_0_17_stored() -> None:
    stored = SequenceTracker([(1, 1), (10_000_000_000, 61)]).encode()
    assert SequenceTracker.decode(stored).points == [(1, 1), (1410065408, 61)]
