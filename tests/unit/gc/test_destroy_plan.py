"""The objects that a destroy deletes, decided from listings: docs/reference/protocol.md 8.8."""

import string
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.errors import InvalidDeletion
from shale.format.names import compactions_key, manifest_key, sst_key, wal_key
from shale.gc.destroy_plan import (
    DeletionStage,
    DestroyPlan,
    ObjectToDelete,
    live_checkpoints,
    objects_to_delete,
    require_no_checkpoints,
    require_own_objects,
    sealed,
)
from shale.store.port import ObjectMeta
from shale.types import Checkpoint, Epoch, Manifest, ManifestId
from tests.unit.gc.values import checkpoint, ulid

SST = str(ulid(7))


def listed(*keys: str, size: int = 3) -> list[ObjectMeta]:
    return [ObjectMeta(key, size, 0) for key in keys]


def plan_of(root: str, *keys: str) -> DestroyPlan:
    return DestroyPlan(root=root, manifest_id=1, is_begun=False, objects=tuple(objects_to_delete(root, listed(*keys))))


def test_ssts_go_first_and_the_latest_manifest_last_but_for_the_marker() -> None:
    keys = [
        "db/.destroyed",
        manifest_key("db", 9),
        manifest_key("db", 10),
        "db/manifest/7.manifest",
        "db/gc/manifest.boundary",
        compactions_key("db", 2),
        wal_key("db", 1),
        sst_key("db", ulid(1)),
    ]
    assert [each.key for each in objects_to_delete("db", listed(*keys))] == [
        sst_key("db", ulid(1)),
        wal_key("db", 1),
        compactions_key("db", 2),
        manifest_key("db", 9),
        "db/manifest/7.manifest",
        "db/gc/manifest.boundary",
        manifest_key("db", 10),
        "db/.destroyed",
    ]


@pytest.mark.parametrize(
    "key",
    [
        pytest.param("db2/manifest/x", id="a sibling whose name begins alike"),
        pytest.param("db", id="an object with the name of the folder"),
        pytest.param("db/", id="the placeholder of the folder"),
        pytest.param("other/db/wal/1", id="the same name elsewhere"),
        pytest.param("db%2Fwal/1", id="an escaped slash"),
        pytest.param("d\u0062\u0301/wal/1", id="a name that looks alike"),
        pytest.param("db/.deleting", id="the marker of the deletion, which goes last"),
    ],
)
def test_what_is_not_below_the_root_is_left_alone(key: str) -> None:
    assert objects_to_delete("db", listed(key)) == []


@pytest.mark.parametrize("folder", ["compacted", "wal", "compactions", "manifest", "gc"])
def test_placeholders_of_folders_are_not_deleted(folder: str) -> None:
    assert objects_to_delete("db", [*listed(f"db/{folder}", size=0), *listed(f"db/{folder}/", size=0)]) == []


@pytest.mark.parametrize(
    "key",
    [
        pytest.param("db/nested/manifest/00000000000000000001.manifest", id="a database below this one"),
        pytest.param("db/wal/inner/manifest/00000000000000000001.manifest", id="a database in one of its folders"),
        pytest.param(f"db/compacted/{SST}.sst/", id="a folder with the name of an SST"),
        pytest.param("db/notes.txt", id="a foreign file"),
        pytest.param("db/wal%2F1", id="percent signs"),
        pytest.param("db/Übersicht/räume 1", id="other letters"),
        pytest.param("db//wal/1", id="an empty segment"),
        pytest.param("db/...", id="dots that climb nowhere"),
    ],
)
def test_what_the_database_has_not_made_goes_by_force_only(key: str) -> None:
    plan = plan_of("db", key, wal_key("db", 1))
    assert plan.foreign == (key,)
    with pytest.raises(InvalidDeletion, match="not the database's own"):
        require_own_objects(plan)


def test_what_a_killed_start_has_left_is_the_databases_own() -> None:
    plan = plan_of("db", "db/.shale-preflight/01ARZ3NDEKTSV4RRFFQ69G5FAV/list/00", wal_key("db", 1))
    require_own_objects(plan)
    assert [total.namespace for total in plan.totals()] == ["wal", "preflight"]


@pytest.mark.parametrize("key", ["db/../db2/wal/1", "db/wal/..", "db/./wal/1"])
def test_a_key_that_climbs_is_never_deleted(key: str) -> None:
    with pytest.raises(InvalidDeletion, match="by its own name"):
        objects_to_delete("db", listed(key))


def test_only_wal_files_go_in_the_store_of_the_wal() -> None:
    others = listed("db/manifest/00000000000000000001.manifest", "db/readme", "db2/wal/1")
    found = objects_to_delete("db", [], [*listed(wal_key("db", 4)), *others])
    assert [(each.key, each.in_wal_store, each.stage) for each in found] == [
        (wal_key("db", 4), True, DeletionStage.WAL)
    ]


def test_totals_are_by_namespace() -> None:
    plan = plan_of("db", manifest_key("db", 1), manifest_key("db", 2), wal_key("db", 1))
    assert [(total.namespace, total.count, total.size) for total in plan.totals()] == [
        ("wal", 1, 3),
        ("manifest", 2, 6),
    ]


def test_a_seal_fences_both_and_leaves_nothing_to_clone_from() -> None:
    manifest = Manifest(checkpoints=(checkpoint(1),), writer_epoch=Epoch(4), compactor_epoch=Epoch(2))
    after = sealed(manifest)
    assert (after.initialized, after.checkpoints, after.writer_epoch, after.compactor_epoch) == (False, (), 5, 3)
    assert after.tree is manifest.tree


@given(
    root=st.text(alphabet=string.ascii_letters + "./%-é", min_size=1, max_size=8).map(
        lambda text: text.strip("/") or "db"
    ),
    rest=st.text(alphabet="ab./%é#", max_size=20),
    in_front=st.text(alphabet="ab/%", max_size=4),
)
def test_nothing_outside_the_root_is_ever_named(root: str, rest: str, in_front: str) -> None:
    keys = [f"{in_front}{root}{rest}", f"{root}/{rest}", f"{in_front}/{root}/{rest}", rest]
    try:
        found = objects_to_delete(root, listed(*keys), listed(*keys))
    except InvalidDeletion:
        return
    assert all(each.key.startswith(f"{root}/") and ".." not in each.key.split("/") for each in found)


def named(number: int, name: str | None = None, *, expire_s: int = 0) -> Checkpoint:
    return Checkpoint(id=UUID(int=number), manifest_id=ManifestId(1), expire_s=expire_s, create_s=1, name=name)


def test_live_checkpoints_are_those_of_readers_and_clones() -> None:
    checkpoints = (
        named(1),
        named(2, "n", expire_s=9),
        named(3, expire_s=10),
        named(4, "writer:3"),
        named(5, "writers"),
    )
    manifest = Manifest(checkpoints=checkpoints)
    assert [each.id.int for each in live_checkpoints(manifest, 9_000)] == [1, 3, 5]
    assert [each.id.int for each in live_checkpoints(manifest, 8_999)] == [1, 2, 3, 5]


@pytest.mark.parametrize(("root", "place"), [("db", "db"), ("", "/")])
@pytest.mark.parametrize(("count", "more"), [(1, ""), (10, ""), (11, ", ...")])
def test_obstacles_name_the_place_and_ten_of_what_is_there(root: str, place: str, count: int, more: str) -> None:
    checkpoints = tuple(named(number, f"n{number}" if number % 2 else None) for number in range(1, count + 1))
    shown = ", ".join(f"{each.id}{f' ({each.name})' if each.name else ''}" for each in checkpoints[:10])
    about = f"{place} has {count} live checkpoints, which clones or readers may need: {shown}{more}"
    with pytest.raises(InvalidDeletion) as caught:
        require_no_checkpoints(root, Manifest(checkpoints=checkpoints), 0)
    assert str(caught.value) == about
    foreign = tuple(ObjectToDelete(f"x{number}", 1, DeletionStage.OTHER) for number in range(count))
    others = ", ".join(f"x{number}" for number in range(min(count, 10)))
    about_others = f"{count} objects below {place} are not the database's own: {others}{more}"
    plan = DestroyPlan(root=root, manifest_id=1, is_begun=False, objects=foreign, checkpoints=checkpoints)
    with pytest.raises(InvalidDeletion) as caught:
        require_own_objects(plan)
    assert str(caught.value) == about_others
    assert plan.obstacles() == (about, about_others)
    assert replace(plan, checkpoints=()).obstacles() == (about_others,)
    require_own_objects(replace(plan, objects=()))
    require_no_checkpoints(root, Manifest(), 0)


def test_the_size_and_the_newest_time_of_a_plan() -> None:
    objects = tuple(ObjectToDelete(f"k{ms}", ms, DeletionStage.WAL, last_modified_ms=ms) for ms in (3, 9, 4))
    plan = DestroyPlan(root="db", manifest_id=1, is_begun=False, objects=objects)
    assert (plan.size, plan.newest_ms) == (16, 9)
    assert (replace(plan, objects=()).size, replace(plan, objects=()).newest_ms) == (0, None)


def test_stages_and_sizes_of_everything_below_the_root() -> None:
    keys = {
        sst_key("db", ulid(1)): DeletionStage.COMPACTED,
        wal_key("db", 2): DeletionStage.WAL,
        compactions_key("db", 3): DeletionStage.COMPACTIONS,
        "db/compaction_records/x.json": DeletionStage.COMPACTION_RECORDS,
        "db/manifest/notes": DeletionStage.MANIFEST,
        "db/gc/manifest.boundary": DeletionStage.GC,
        "db/.shale-preflight/x": DeletionStage.PREFLIGHT,
        "db/.shale-preflight/x/y/z": DeletionStage.PREFLIGHT,
        manifest_key("db", 4): DeletionStage.LATEST_MANIFEST,
        "db/.destroyed": DeletionStage.MARKER,
        "db/other/x": DeletionStage.OTHER,
        "db/preflight/x": DeletionStage.OTHER,
        "db/marker": DeletionStage.OTHER,
        "db/manifest": DeletionStage.OTHER,
    }
    metas = [ObjectMeta(key, number, 100 + number) for number, key in enumerate(keys, 1)]
    found = objects_to_delete("db", metas)
    assert {each.key: each.stage for each in found} == keys
    assert [(each.stage, each.key) for each in found] == sorted((stage, key) for key, stage in keys.items())
    assert {(each.key, each.size, each.last_modified_ms) for each in found} == {
        (meta.key, meta.size, meta.last_modified_ms) for meta in metas
    }
    assert {each.stage.namespace for each in found} == {
        "compacted", "wal", "compactions", "compaction_records", "manifest", "gc", "preflight", "marker", "other"
    }  # fmt: skip


def test_files_of_the_wal_go_before_those_in_its_own_store() -> None:
    found = objects_to_delete("db", listed(wal_key("db", 9)), listed(wal_key("db", 1), wal_key("db", 2)))
    assert [(each.key, each.in_wal_store) for each in found] == [
        (wal_key("db", 9), False), (wal_key("db", 1), True), (wal_key("db", 2), True)
    ]  # fmt: skip


def test_manifests_without_a_number_are_never_the_latest() -> None:
    keys = ["db/manifest/7.manifest", "db/manifest/z"]
    assert {each.stage for each in objects_to_delete("db", listed(*keys))} == {DeletionStage.MANIFEST}
    first = objects_to_delete("db", listed(manifest_key("db", 1), *keys))
    assert [each.stage for each in first if each.key == manifest_key("db", 1)] == [DeletionStage.LATEST_MANIFEST]


def test_the_root_of_a_store_can_be_a_database() -> None:
    found = objects_to_delete("", listed("manifest/00000000000000000001.manifest", ".destroyed", ".deleting"))
    assert [(each.key, each.stage) for each in found] == [
        ("manifest/00000000000000000001.manifest", DeletionStage.LATEST_MANIFEST),
        (".destroyed", DeletionStage.MARKER),
    ]


def test_keys_outside_the_root_do_not_hide_later_ones() -> None:
    assert [each.key for each in plan_of("db", "db", "db2/wal/x", wal_key("db", 1)).objects] == [wal_key("db", 1)]
