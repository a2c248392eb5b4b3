"""Each rule of cloning is needed: without it a simulation fails within a few seeds.

Source: docs/reference/protocol.md 10.3, 11.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from shale.clones import clone, clone_manifest, existing_clone, projection, union
from shale.clones.database_catalog import DatabaseCatalog
from shale.clones.ranges import covered_in_run
from shale.clones.request import CloneRequest, CloneResult
from shale.clones.wal_files import copy_files, wal_range
from shale.core.bytes_like import BytesLike
from shale.gc import collector, sweeps
from shale.gc.database import GcDatabase
from shale.gc.options import Task
from shale.gc.passes import Pass
from shale.protocol.manifest_store import StoredManifest
from shale.protocol.versioned import Versioned
from shale.protocol.wal_store import WalStore
from shale.types import BoundKind, ExternalDb, KeyRange, Manifest, Seq, SstView, Tree, excluded
from shale_compactor.coordinator import coordinator
from tests.simulation.clones import test_clones as clones
from tests.simulation.clones import test_unions as unions
from tests.simulation.mutations import MUTATION_SEEDS, seed_that_fails

Scenario = Callable[[int], object]
KILLED = clones.test_a_clone_killed_after_any_request_completes_when_retried


def found_by(*rows: Scenario, seeds: int = MUTATION_SEEDS) -> None:
    """Each of these defects fails within ``MUTATION_SEEDS`` seeds."""
    for each in rows:
        seed_that_fails(each, seeds)


async def pin(catalog: DatabaseCatalog, manifest: Manifest) -> None:
    for entry in manifest.external_dbs:
        await clone._pin(catalog, entry)


async def copy(catalog: DatabaseCatalog, request: CloneRequest, manifest: Manifest) -> None:
    if not request.is_union:
        source, target = catalog.wal(request.sources[0].path), catalog.wal(request.path)
        await copy_files(source, target, wal_range(manifest))


async def initialize(stored: StoredManifest) -> None:
    await stored.update(Versioned(1, replace(stored.value, initialized=True)))


def test_pins_come_after_the_clone_is_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    async def finish(catalog: DatabaseCatalog, request: CloneRequest, stored: StoredManifest) -> CloneResult:
        half_built = stored.value
        await copy(catalog, request, half_built)
        await initialize(stored)
        await pin(catalog, half_built)
        return CloneResult(path=request.path, manifest_id=2, is_new=True)

    monkeypatch.setattr(clone, "_finish", finish)
    found_by(clones.test_a_clone_is_whole_though_its_parent_compacts_and_collects)


def test_the_log_comes_after_the_clone_is_initialised(monkeypatch: pytest.MonkeyPatch) -> None:
    async def finish(catalog: DatabaseCatalog, request: CloneRequest, stored: StoredManifest) -> CloneResult:
        half_built = stored.value
        await pin(catalog, half_built)
        await initialize(stored)
        await copy(catalog, request, half_built)
        return CloneResult(path=request.path, manifest_id=2, is_new=True)

    monkeypatch.setattr(clone, "_finish", finish)
    found_by(KILLED, seeds=3 * MUTATION_SEEDS)


def test_pins_come_before_the_clone_knows_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    real = clone._attempt

    async def attempt(catalog: DatabaseCatalog, request: CloneRequest) -> CloneResult:
        manifests = catalog.manifests(request.path)
        if await manifests.try_read_latest() is not None:
            return await real(catalog, request)
        sourced = [await clone.resolve_source(catalog, request, source) for source in request.sources]
        manifest = clone._first_manifest(catalog, request, sourced)
        await pin(catalog, manifest)
        return await clone._finish(catalog, request, await manifests.create_new(manifest))

    monkeypatch.setattr(clone, "_attempt", attempt)
    found_by(KILLED, seeds=3 * MUTATION_SEEDS)


def test_the_log_is_not_pinned_before_it_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    async def finish(catalog: DatabaseCatalog, request: CloneRequest, stored: StoredManifest) -> CloneResult:
        half_built = stored.value
        await copy(catalog, request, half_built)
        await pin(catalog, half_built)
        await initialize(stored)
        return CloneResult(path=request.path, manifest_id=2, is_new=True)

    monkeypatch.setattr(clone, "_finish", finish)
    found_by(clones.test_a_clone_is_whole_or_refused_when_the_parent_wal_is_collected)


def test_the_log_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    async def overwritten(self: WalStore, wal_id: int, data: BytesLike) -> bool:
        await self._store.put(self.key(wal_id), data)
        return True

    monkeypatch.setattr(WalStore, "try_put", overwritten)
    monkeypatch.setattr(existing_clone, "require_resumable", nothing_is_asked)
    monkeypatch.setattr(clone, "require_resumable", nothing_is_asked)
    found_by(clones.test_a_half_built_clone_is_finished_only_as_it_was_requested)


async def nothing_is_asked(*_: object) -> None:
    return


def test_without_the_check_that_the_clone_was_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    async def finish(catalog: DatabaseCatalog, request: CloneRequest, stored: StoredManifest) -> CloneResult:
        half_built = stored.value
        await pin(catalog, half_built)
        await stored.apply(lambda current: replace(current.value, initialized=True))
        return CloneResult(path=request.path, manifest_id=2, is_new=True)

    monkeypatch.setattr(clone, "require_resumable", nothing_is_asked)
    monkeypatch.setattr(clone, "_finish", finish)
    found_by(clones.test_a_half_built_clone_is_finished_only_as_it_was_requested)


def test_a_nested_clone_hangs_on_the_users_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(entry: ExternalDb) -> ExternalDb:
        return replace(entry, final_checkpoint_id=None)

    monkeypatch.setattr(clone_manifest, "_handed_on", copied)
    found_by(clones.test_a_nested_clone_survives_the_destroy_of_the_middle_one)


def test_a_clone_inherits_what_it_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(manifest: Manifest) -> tuple[ExternalDb, ...]:
        return tuple(clone_manifest._handed_on(entry) for entry in manifest.external_dbs)

    monkeypatch.setattr(clone_manifest, "inherited", everything)
    found_by(clones.test_a_clone_is_whole_when_its_source_detaches_meanwhile, seeds=3 * MUTATION_SEEDS)


def test_a_clone_forgets_its_parent_before_the_parent_forgets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real, release = sweeps.sweep_detach, sweeps._release_parent

    async def turned(database: GcDatabase, this: Pass) -> None:
        promised: list[ExternalDb] = []

        async def later(_: GcDatabase, external: ExternalDb, __: Pass) -> bool:
            promised.append(external)
            return True

        monkeypatch.setattr(sweeps, "_release_parent", later)
        await real(database, this)
        for external in promised:
            await release(database, external, this)

    monkeypatch.setitem(collector.SWEEPS, Task.DETACH, turned)
    found_by(clones.test_a_clone_detaches_when_it_needs_nothing_of_its_parent, seeds=3 * MUTATION_SEEDS)


def test_a_union_is_known_by_its_own_ssts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def differs(*_: object) -> bool:
        return False

    monkeypatch.setattr(existing_clone, "_is_union_of", differs)
    found_by(clones.test_a_union_killed_after_any_request_completes_when_retried, seeds=3 * MUTATION_SEEDS)


def test_a_key_belongs_to_one_sst_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def exclusive(view: SstView, own: KeyRange, after: KeyRange | None) -> KeyRange:
        keys = covered_in_run(view, own, after)
        if after is None or keys.end.kind is not BoundKind.INCLUDED or keys.end.key is None:
            return keys
        return replace(keys, end=excluded(keys.end.key))

    monkeypatch.setattr(projection, "covered_in_run", exclusive)
    found_by(unions.test_a_key_that_spans_two_ssts_keeps_its_versions_in_a_union)


def test_what_was_cut_off_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def whole(view: SstView, _: KeyRange, after: KeyRange | None) -> KeyRange:
        return covered_in_run(replace(view, visible_range=None), view.sst.info.physical_range, after)

    monkeypatch.setattr(projection, "covered_in_run", whole)
    found_by(unions.test_a_key_that_spans_two_ssts_keeps_its_versions_in_a_union, seeds=3 * MUTATION_SEEDS)


def test_a_union_lists_ssts_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def concatenated(trees: Sequence[Tree], **_: object) -> Tree:
        return Tree(
            l0=tuple(view for tree in trees for view in tree.l0),
            compacted=tuple(run for tree in trees for run in tree.compacted),
        )

    monkeypatch.setattr(union, "united_tree", concatenated)
    with pytest.raises(AssertionError):
        unions.test_l0s_that_straddle_a_cut_are_in_both_halves(4)


def test_l0s_are_promoted_below_the_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(union, "_promoted", lambda tree: (*tree.compacted, *union.runs_of(tree.l0, 0)))
    monkeypatch.setattr(union, "merged_l0", lambda _: None)
    found_by(unions.test_ten_rounds_of_split_and_union_keep_every_row, seeds=3 * MUTATION_SEEDS)


def test_a_union_begins_to_count_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    real = union._renumbered
    monkeypatch.setattr(union, "_renumbered", lambda manifest: replace(real(manifest), last_l0_seq=Seq(0)))
    found_by(unions.test_first_writes_after_a_union_are_the_newest)


def test_the_coordinator_repairs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def repair_nothing(*_: object, **__: object) -> tuple[()]:
        return ()

    monkeypatch.setattr(coordinator, "repair_duplicate_l0", repair_nothing)
    found_by(unions.test_duplicate_l0s_of_a_slatedb_union_are_repaired)
