"""``shale.sync.Admin`` and the cache of a database have the methods of the asynchronous ones."""

import inspect
from typing import Any

import pytest

from shale import sync
from shale.admin import admin, checkpoints, clones, gc, states
from shale.engine import db_cache
from shale.errors import ClosedError, UnknownCheckpoint
from shale.store.memory import MemoryStore
from shale.sync import admin as sync_admin
from shale.sync import db_cache as sync_db_cache

TWINS = [
    (admin.Admin, sync_admin.Admin),
    (checkpoints.CheckpointAdmin, sync_admin.CheckpointAdmin),
    (states.StateAdmin, sync_admin.StateAdmin),
    (clones.CloneAdmin, sync_admin.CloneAdmin),
    (gc.GcAdmin, sync_admin.GcAdmin),
    (db_cache.DbCache, sync_db_cache.DbCache),
]


def public(class_: type) -> dict[str, Any]:
    """Return public names and their parameters."""
    return {
        name: None if isinstance(value, property) else list(inspect.signature(value).parameters.items())
        for name, value in vars(class_).items()
        if not name.startswith("_")
    }


@pytest.mark.parametrize(("asynchronous", "blocking"), TWINS, ids=lambda class_: class_.__name__)
def test_twins_have_the_same_names_and_arguments(asynchronous: type, blocking: type) -> None:
    def shapes(class_: type) -> dict[str, Any]:
        return {
            name: parameters and [(each, one.kind, one.default) for each, one in parameters]
            for name, parameters in public(class_).items()
        }

    assert shapes(blocking) == shapes(asynchronous)


def test_states_are_kept_and_looked_at() -> None:
    store = MemoryStore()
    with sync.Db.open("db", store=store, flush_interval=0, writer_checkpoint=False) as db:
        db.put(b"k", b"v")
        all_of_it = db.checkpoint(name="all", lifetime="1h")
        durable = db.checkpoint(scope="durable", source=None)
        with sync.Admin("db", store=store) as found:
            assert found.checkpoints.list() == (all_of_it, durable)
            copy = found.checkpoints.create("2h", all_of_it.id, "copy")
            assert found.checkpoints.get(copy.id) == copy
            assert found.checkpoints.refresh(copy.id).expire_s == 0
            assert found.checkpoints.exclusive_ssts(copy.id).ssts == ()
            assert found.checkpoints.delete(copy.id)
            with pytest.raises(UnknownCheckpoint):
                found.checkpoints.refresh(copy.id)
            newest = found.states.manifest()
            assert newest is not None
            assert [each.id for each in found.states.manifests(2)] == list(range(2, newest.id + 1))
            assert found.states.state_view().compactions is None
            assert list(found.states.compactions_files()) == []
            assert found.gc.plan().manifest_id == newest.id
            assert set(found.gc.run_once())
            assert found.destroy("soft").mark is None
            assert found.time_of(1) is not None
        with pytest.raises(ClosedError):
            found.checkpoints.list()


def test_clones_and_checks() -> None:
    store = MemoryStore()
    with sync.Db.open("a", store=store) as db:
        db.put(b"k", b"v")
    with sync.Admin("b", store=store) as found:
        assert found.clones.create("a").is_new
        assert not found.verify().findings
