"""Which reads of a manifest are evidence that the active writer lives; clocks of other hosts do not count."""

from dataclasses import replace
from uuid import UUID

from shale.types import Checkpoint, Epoch, Manifest, ManifestId, Seq
from shale.types.writer_sign import challenge_name
from shale_writer.standby.decision import ActiveState
from shale_writer.standby.evidence import Evidence, ManifestRead

CHALLENGE = UUID(int=99)


def manifest(epoch: int = 1, sign: int | None = 1, *, create_s: int = 0, challenged: bool = False) -> Manifest:
    """Return a manifest; ``sign`` is the id of the writer's checkpoint."""
    entries = []
    if sign is not None:
        name = f"writer:{epoch}?host=a"
        entries.append(Checkpoint(id=UUID(int=sign), manifest_id=ManifestId(sign), create_s=create_s, name=name))
    if challenged:
        entries.append(Checkpoint(id=CHALLENGE, manifest_id=ManifestId(9), name=challenge_name(Epoch(epoch), "b")))
    return Manifest(writer_epoch=Epoch(epoch), checkpoints=tuple(entries))


def read(found: Manifest, at_s: float, *, is_closed: bool = False, wal_id: int = 0) -> ManifestRead:
    return ManifestRead(manifest=found, begun_s=at_s, ended_s=at_s + 0.1, is_closed=is_closed, wal_id=wal_id)


def test_a_new_epoch_and_a_new_sign_are_evidence_and_an_old_sign_is_not() -> None:
    evidence = Evidence(0.0)
    assert evidence.saw_manifest(read(manifest(), 10.0))
    assert evidence.observed.alive_s == 10.1
    assert not evidence.saw_manifest(read(manifest(), 12.0))
    assert (evidence.observed.alive_s, evidence.observed.read_s) == (10.1, 12.0)
    assert not evidence.saw_manifest(read(manifest(sign=2), 13.0))
    assert evidence.observed.alive_s == 13.1
    assert evidence.saw_manifest(read(manifest(epoch=2, sign=3), 14.0))
    assert (evidence.observed.alive_s, evidence.epoch) == (14.1, 2)


def test_the_times_in_a_sign_do_not_matter() -> None:
    evidence = Evidence(0.0)
    evidence.saw_manifest(read(manifest(create_s=4_000_000_000), 10.0))
    evidence.saw_manifest(read(manifest(create_s=4_000_000_000), 20.0))
    assert evidence.observed.alive_s == 10.1
    assert evidence.observed.state is ActiveState.SIGNED


def test_a_new_sign_answers_a_challenge() -> None:
    evidence = Evidence(0.0)
    evidence.saw_manifest(read(manifest(), 10.0))
    evidence.challenged(CHALLENGE, 12.0)
    evidence.saw_manifest(read(manifest(challenged=True), 13.0))
    assert evidence.observed.challenged_s == 12.0
    evidence.saw_manifest(read(manifest(sign=2), 14.0))
    assert evidence.observed.challenged_s is None


def test_a_challenge_that_was_removed_without_an_answer_is_repeated() -> None:
    evidence = Evidence(0.0)
    evidence.saw_manifest(read(manifest(), 10.0))
    evidence.challenged(CHALLENGE, 12.0)
    evidence.saw_manifest(read(manifest(), 13.0))
    assert evidence.observed.challenged_s is None
    assert evidence.observed.alive_s == 10.1


def test_an_answer_over_http_counts_from_the_time_of_the_request() -> None:
    evidence = Evidence(0.0)
    evidence.saw_manifest(read(manifest(), 10.0))
    evidence.challenged(CHALLENGE, 12.0)
    evidence.saw_answer(1, 12.5)
    assert (evidence.observed.alive_s, evidence.observed.challenged_s) == (12.5, None)
    evidence.saw_answer(1, 11.0)
    assert evidence.observed.alive_s == 12.5


def test_an_answer_of_an_older_writer_is_no_evidence() -> None:
    evidence = Evidence(0.0)
    evidence.saw_manifest(read(manifest(epoch=2), 10.0))
    evidence.saw_answer(1, 12.5)
    assert evidence.observed.alive_s == 10.1


def test_the_state_of_the_newest_writer() -> None:
    evidence = Evidence(0.0)
    assert evidence.observed.state is ActiveState.UNSIGNED
    evidence.saw_no_database(1.0)
    assert evidence.observed.state is ActiveState.NONE
    evidence.saw_manifest(read(Manifest(), 2.0))
    assert evidence.observed.state is ActiveState.NONE
    evidence.saw_manifest(read(manifest(), 3.0))
    assert evidence.observed.state is ActiveState.SIGNED
    evidence.saw_manifest(read(manifest(sign=None), 4.0, is_closed=True))
    assert evidence.observed.state is ActiveState.CLOSED
    evidence.saw_manifest(read(manifest(sign=None), 5.0))
    assert evidence.observed.state is ActiveState.UNSIGNED


def test_a_wal_file_is_a_change_of_an_unsigned_writer() -> None:
    evidence = Evidence(0.0)
    unsigned = replace(manifest(sign=None), writer_epoch=Epoch(1))
    evidence.saw_manifest(read(unsigned, 10.0, wal_id=1))
    evidence.saw_manifest(read(unsigned, 20.0, wal_id=1))
    assert evidence.observed.changed_s == 10.1
    evidence.saw_manifest(read(unsigned, 30.0, wal_id=2))
    assert evidence.observed.changed_s == 30.1
    evidence.saw_manifest(read(replace(unsigned, last_l0_seq=Seq(6)), 40.0, wal_id=2))
    assert evidence.observed.changed_s == 40.1


def test_what_readers_change_is_no_change_of_an_unsigned_writer() -> None:
    evidence = Evidence(0.0)
    unsigned = manifest(sign=None)
    evidence.saw_manifest(read(unsigned, 10.0, wal_id=1))
    lease = Checkpoint(id=UUID(int=7), manifest_id=ManifestId(7), create_s=1, name="reader")
    evidence.saw_manifest(read(replace(unsigned, checkpoints=(lease,)), 20.0, wal_id=1))
    assert evidence.observed.changed_s == 10.1
