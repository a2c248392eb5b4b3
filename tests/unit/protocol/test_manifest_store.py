"""Which databases a process may open by how they create their files, and the format in which it writes manifests."""

from dataclasses import replace

import pytest

from shale.env import Env, InlineCpu
from shale.errors import CorruptionError, InvalidDbState
from shale.format.manifest import ManifestEncoder, decode_manifest
from shale.format.names import manifest_key
from shale.protocol.manifest_store import COMPACTOR, WRITER, ManifestStore
from shale.protocol.options import ProtocolOptions
from shale.store.memory import MemoryStore
from shale.types import MANIFEST_VERSION, CasMode, Epoch, ExclusiveModes, Manifest, Seq
from tests.clocks import ManualClock
from tests.unit.protocol.conftest import run
from tests.unit.protocol.draws import Draws

KEY = manifest_key("db", 1)


class TwoPhase(MemoryStore):
    cas = CasMode.TWO_PHASE


def manifests_of(store: MemoryStore, options: ProtocolOptions | None = None) -> ManifestStore:
    return ManifestStore(store, "db", Env(ManualClock(), Draws(), InlineCpu()), options=options)


@pytest.mark.parametrize(
    ("exclusive", "written"),
    [
        (None, ExclusiveModes(cas=CasMode.TWO_PHASE)),
        (
            ExclusiveModes(max_parallel_writes=4, wal_backend="q"),
            ExclusiveModes(max_parallel_writes=4, wal_backend="q", cas=CasMode.TWO_PHASE),
        ),
    ],
)
def test_a_manifest_tells_that_creates_have_two_phases(
    exclusive: ExclusiveModes | None, written: ExclusiveModes
) -> None:
    async def main() -> None:
        store = TwoPhase()
        stored = await manifests_of(store).create_new(Manifest(exclusive=exclusive, last_l0_seq=Seq(7)))
        assert decode_manifest(store.objects[KEY].data) == Manifest(exclusive=written, last_l0_seq=Seq(7))
        assert (await stored.refresh()).value.exclusive == written, "the value that is used is the one that was written"

    run(main)


def test_a_manifest_of_native_creates_has_no_envelope() -> None:
    async def main() -> None:
        store = MemoryStore()
        await manifests_of(store).create_new(Manifest())
        assert decode_manifest(store.objects[KEY].data).exclusive is None

    run(main)


@pytest.mark.parametrize(
    ("stored", "opened", "words"),
    [
        (MemoryStore, MemoryStore, None),
        (TwoPhase, TwoPhase, None),
        (TwoPhase, MemoryStore, "store.cas=two-phase, this process native: set store.cas=two-phase"),
        (MemoryStore, TwoPhase, "store.cas=native, this process two-phase: stop all processes and run 'shale cas"),
    ],
)
def test_a_process_creates_files_as_the_database_does(
    stored: type[MemoryStore], opened: type[MemoryStore], words: str | None
) -> None:
    async def main() -> None:
        before, store = stored(), opened()
        await manifests_of(before).create_new(Manifest())
        store.objects = before.objects
        if words is None:
            assert (await manifests_of(store).read_latest()).id == 1
        else:
            with pytest.raises(InvalidDbState, match=words) as caught:
                await manifests_of(store).read_latest()
            assert KEY in str(caught.value)
        assert await manifests_of(store).read(1) is not None, "an older version may be from before a migration"

    run(main)


def test_a_parallel_wal_alone_does_not_change_how_files_are_created() -> None:
    async def main() -> None:
        store = MemoryStore()
        await manifests_of(store).create_new(Manifest(exclusive=ExclusiveModes(max_parallel_writes=4)))
        assert (await manifests_of(store).read_latest()).value.max_parallel_writes == 4

    run(main)


@pytest.mark.parametrize("version", [1, 2])
def test_manifests_are_written_in_the_version_of_the_options(version: int) -> None:
    async def main() -> None:
        store = MemoryStore()
        options = ProtocolOptions(manifest_write_version=version)  # type: ignore[arg-type]
        manifest = Manifest(last_l0_seq=Seq(5))
        stored = await manifests_of(store, options).create_new(manifest)
        assert store.objects[KEY].data == ManifestEncoder(version=version).encode(manifest)  # type: ignore[arg-type]
        assert (await stored.refresh()).value == manifest
        default = MemoryStore()
        await manifests_of(default).create_new(manifest)
        assert (default.objects[KEY].data == store.objects[KEY].data) is (version == MANIFEST_VERSION)

    run(main)


@pytest.mark.parametrize(("seq", "is_damaged"), [(2**63 - 1, False), (2**63, True), (2**64 - 1, True)])
def test_a_number_that_no_database_reaches_is_damage(seq: int, is_damaged: bool) -> None:
    async def main() -> None:
        store = MemoryStore()
        await store.put(KEY, ManifestEncoder().encode(Manifest(last_l0_seq=Seq(seq))))
        if is_damaged:
            with pytest.raises(CorruptionError, match=f"last_l0_seq is {seq}") as caught:
                await manifests_of(store).read_latest()
            assert caught.value.path == KEY
        else:
            assert (await manifests_of(store).read_latest()).value.last_l0_seq == seq

    run(main)


def test_the_epochs_of_writer_and_compactor() -> None:
    manifest = Manifest(writer_epoch=Epoch(3), compactor_epoch=Epoch(8))
    assert (WRITER.get(manifest), COMPACTOR.get(manifest)) == (3, 8)
    assert WRITER.set(manifest, Epoch(4)) == replace(manifest, writer_epoch=Epoch(4))
    assert COMPACTOR.set(manifest, Epoch(9)) == replace(manifest, compactor_epoch=Epoch(9))
    assert str(COMPACTOR.fenced("8 is old")) == "compactor epoch 8 is old"
    assert str(WRITER.fenced("3 is old")).startswith("writer epoch 3 is old; a database has one writer: ")
