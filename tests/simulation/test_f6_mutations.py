"""Every rule that keeps clones whole is missed when it is gone, within few seeds (docs/protocol.md 10.3, 11)."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from shale.clones import attachment, clone, clone_manifest, projection, union, united_tree
from shale.clones.neighbours import Neighbours
from shale.clones.ranges import covered_in_run
from shale.clones.request import CloneRequest, CloneResult
from shale.clones.wal_files import copy_files, wal_range
from shale.garbage import collector, sweep_detach
from shale.garbage.database import Database
from shale.garbage.options import Task
from shale.garbage.passes import Pass
from shale.protocol.manifest_store import StoredManifest
from shale.protocol.versioned import Versioned
from shale.protocol.wal_store import WalStore
from shale.store.port import Buffer
from shale.types import BoundKind, ExternalDb, KeyRange, Manifest, Seq, SstView, Tree, excluded
from shale_compactor.coordinator import coordinator
from tests.simulation import test_f6_clones as clones
from tests.simulation import test_f6_unions as unions
from tests.simulation.conftest import DEFAULT_SEEDS
from tests.simulation.mutants import first_seed_that_fails

Scenario = Callable[[int], object]
KILLED = clones.test_f6_1_killed_after_every_request_and_tried_again


def found_by(*rows: Scenario, seeds: int = DEFAULT_SEEDS) -> None:
    """Each of these rows fails within the seeds of the default suite."""
    for each in rows:
        first_seed_that_fails(each, seeds)


async def pin(neighbours: Neighbours, manifest: Manifest) -> None:
    for entry in manifest.external_dbs:
        await clone._pin(neighbours, entry)


async def copy(neighbours: Neighbours, request: CloneRequest, manifest: Manifest) -> None:
    if not request.is_union:
        source, target = neighbours.wal(request.sources[0].path), neighbours.wal(request.path)
        await copy_files(source, target, wal_range(manifest))


async def initialize(stored: StoredManifest) -> None:
    await stored.update(Versioned(1, replace(stored.value, initialized=True)))


def test_pins_come_after_the_clone_is_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    async def finish(neighbours: Neighbours, request: CloneRequest, stored: StoredManifest) -> CloneResult:
        half_built = stored.value
        await copy(neighbours, request, half_built)
        await initialize(stored)
        await pin(neighbours, half_built)
        return CloneResult(path=request.path, manifest_id=2, is_new=True)

    monkeypatch.setattr(clone, "_finish", finish)
    found_by(clones.test_f6_3_the_parent_compacts_and_collects_during_the_clone)


def test_the_log_comes_after_the_clone_is_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    async def finish(neighbours: Neighbours, request: CloneRequest, stored: StoredManifest) -> CloneResult:
        half_built = stored.value
        await pin(neighbours, half_built)
        await initialize(stored)
        await copy(neighbours, request, half_built)
        return CloneResult(path=request.path, manifest_id=2, is_new=True)

    monkeypatch.setattr(clone, "_finish", finish)
    found_by(KILLED, seeds=3 * DEFAULT_SEEDS)


def test_pins_come_before_the_clone_knows_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    real = clone._attempt

    async def attempt(neighbours: Neighbours, request: CloneRequest) -> CloneResult:
        manifests = neighbours.manifests(request.path)
        if await manifests.try_read_latest() is not None:
            return await real(neighbours, request)
        sourced = [await clone.find_source(neighbours, request, source) for source in request.sources]
        manifest = clone._first_manifest(neighbours, request, sourced)
        await pin(neighbours, manifest)
        return await clone._finish(neighbours, request, await manifests.create_new(manifest))

    monkeypatch.setattr(clone, "_attempt", attempt)
    found_by(KILLED, seeds=3 * DEFAULT_SEEDS)


def test_the_log_is_not_pinned_before_it_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    async def finish(neighbours: Neighbours, request: CloneRequest, stored: StoredManifest) -> CloneResult:
        half_built = stored.value
        await copy(neighbours, request, half_built)
        await pin(neighbours, half_built)
        await initialize(stored)
        return CloneResult(path=request.path, manifest_id=2, is_new=True)

    monkeypatch.setattr(clone, "_finish", finish)
    found_by(clones.test_f6_4_the_parents_log_is_collected_during_the_copy)


def test_the_log_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    async def overwritten(self: WalStore, wal_id: int, data: Buffer) -> bool:
        await self._store.put(self.key(wal_id), data)
        return True

    monkeypatch.setattr(WalStore, "try_put", overwritten)
    monkeypatch.setattr(attachment, "require_same_beginning", nothing_is_asked)
    monkeypatch.setattr(clone, "require_same_beginning", nothing_is_asked)
    found_by(clones.test_f6_14_a_half_built_clone_in_other_hands)


async def nothing_is_asked(*_: object) -> None:
    return


def test_nobody_asks_whether_the_clone_was_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    async def finish(neighbours: Neighbours, request: CloneRequest, stored: StoredManifest) -> CloneResult:
        half_built = stored.value
        await pin(neighbours, half_built)
        await stored.apply(lambda current: replace(current.value, initialized=True))
        return CloneResult(path=request.path, manifest_id=2, is_new=True)

    monkeypatch.setattr(clone, "require_same_beginning", nothing_is_asked)
    monkeypatch.setattr(clone, "_finish", finish)
    found_by(clones.test_f6_14_a_half_built_clone_in_other_hands)


def test_a_nested_clone_hangs_on_the_users_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(entry: ExternalDb) -> ExternalDb:
        return replace(entry, final_checkpoint_id=None)

    monkeypatch.setattr(clone_manifest, "_handed_on", copied)
    found_by(clones.test_f6_6_nested_clones_and_the_middle_goes)


def test_a_clone_inherits_what_it_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(manifest: Manifest) -> tuple[ExternalDb, ...]:
        return tuple(clone_manifest._handed_on(entry) for entry in manifest.external_dbs)

    monkeypatch.setattr(clone_manifest, "inherited", everything)
    found_by(clones.test_f6_15_the_source_is_detached_while_it_is_cloned, seeds=3 * DEFAULT_SEEDS)


def test_a_clone_forgets_its_parent_before_the_parent_forgets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real, release = sweep_detach.sweep_detach, sweep_detach._release

    async def turned(database: Database, this: Pass) -> None:
        promised: list[ExternalDb] = []

        async def later(_: Database, external: ExternalDb, __: Pass) -> bool:
            promised.append(external)
            return True

        monkeypatch.setattr(sweep_detach, "_release", later)
        await real(database, this)
        for external in promised:
            await release(database, external, this)

    monkeypatch.setitem(collector.SWEEPS, Task.DETACH, turned)
    found_by(clones.test_f6_5_detaching, seeds=3 * DEFAULT_SEEDS)


def test_a_union_is_known_by_its_own_ssts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def differs(*_: object) -> bool:
        return False

    monkeypatch.setattr(attachment, "_is_union_of", differs)
    found_by(clones.test_f6_1_a_union_killed_after_every_request_and_tried_again, seeds=3 * DEFAULT_SEEDS)


def test_a_key_belongs_to_one_sst_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def exclusive(view: SstView, own: KeyRange, after: KeyRange | None) -> KeyRange:
        keys = covered_in_run(view, own, after)
        if after is None or keys.end.kind is not BoundKind.INCLUDED or keys.end.key is None:
            return keys
        return replace(keys, end=excluded(keys.end.key))

    monkeypatch.setattr(projection, "covered_in_run", exclusive)
    found_by(unions.test_f6_13_a_key_that_spans_two_ssts)


def test_what_was_cut_off_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def whole(view: SstView, _: KeyRange, after: KeyRange | None) -> KeyRange:
        return covered_in_run(replace(view, visible_range=None), view.sst.info.physical_range, after)

    monkeypatch.setattr(projection, "covered_in_run", whole)
    found_by(unions.test_f6_13_a_key_that_spans_two_ssts, seeds=3 * DEFAULT_SEEDS)


def test_a_union_lists_ssts_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def concatenated(trees: Sequence[Tree], **_: object) -> Tree:
        return Tree(
            l0=tuple(view for tree in trees for view in tree.l0),
            compacted=tuple(run for tree in trees for run in tree.compacted),
        )

    monkeypatch.setattr(union, "united_tree", concatenated)
    with pytest.raises(AssertionError):
        unions.test_f6_11_l0s_that_straddle_the_cut(4)


def test_l0s_are_lifted_behind_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(united_tree, "_lifted", lambda tree: (*tree.compacted, *united_tree.runs_of(tree.l0, 0)))
    monkeypatch.setattr(united_tree, "merged_l0", lambda _: None)
    found_by(unions.test_f6_7_ten_round_trips, seeds=3 * DEFAULT_SEEDS)


def test_a_union_begins_to_count_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    real = union._renumbered
    monkeypatch.setattr(union, "_renumbered", lambda manifest: replace(real(manifest), last_l0_seq=Seq(0)))
    found_by(unions.test_f6_10_first_writes_after_a_union)


def test_the_coordinator_heals_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def heal(*_: object, **__: object) -> tuple[()]:
        return ()

    monkeypatch.setattr(coordinator, "heal", heal)
    found_by(unions.test_f6_12_a_union_of_slatedb_is_healed)
