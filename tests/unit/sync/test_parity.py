"""The blocking handles have the methods of the asynchronous ones, with the same parameters."""

import inspect
from typing import Any

import pytest

from shale import sync
from shale.admin import admin
from shale.client import client
from shale.engine import db, db_reader, status
from shale.engine.read import snapshot
from shale.engine.reader import snapshot as reader_snapshot
from shale.engine.scan import scan
from shale.engine.txn import transaction
from shale.engine.wal import reader
from shale.engine.write import write_handle
from shale.sync import admin as sync_admin
from shale.sync import status as sync_status

PAIRS = [
    (db.Db, sync.Db, set()),
    (status.DbStatus, sync_status.DbStatus, set()),
    (db_reader.DbReader, sync.DbReader, set()),
    (snapshot.Snapshot, sync.Snapshot, set()),
    (reader_snapshot.ReaderSnapshot, sync.Snapshot, set()),
    (transaction.Transaction, sync.Transaction, set()),
    (scan.Scan, sync.Scan, set()),
    (write_handle.WriteHandle, sync.WriteHandle, set()),
    (reader.WalReader, sync_admin.WalReader, set()),
    (admin.Admin, sync.Admin, set()),
    (client.Client, sync.Client, {"call", "send"}),
]
"""The asynchronous class, the blocking one, and what only the first has."""


def public(class_: type) -> dict[str, Any]:
    """Return the public names of a class and its bases."""
    return {name: getattr(class_, name) for name in dir(class_) if not name.startswith("_")}


def parameters(method: Any) -> list[tuple[str, Any, Any]]:
    """Return names, kinds and defaults, without ``self``."""
    found = inspect.signature(method).parameters.values()
    return [(each.name, each.kind, each.default) for each in found if each.name != "self"]


def annotations(method: Any) -> list[Any]:
    """Return the types of the parameters, without ``self``."""
    return [each.annotation for each in inspect.signature(method).parameters.values() if each.name != "self"]


@pytest.mark.parametrize(("asynchronous", "blocking", "without"), PAIRS, ids=lambda each: getattr(each, "__name__", ""))
def test_the_blocking_class_has_the_same_methods(asynchronous: type, blocking: type, without: set[str]) -> None:
    there, here = public(asynchronous), public(blocking)
    assert set(there) - set(here) == without
    assert not set(here) - set(there)
    for name, member in here.items():
        if inspect.isfunction(member):
            assert parameters(member) == parameters(there[name]), name


@pytest.mark.parametrize(
    ("method", "returns"),
    [
        (sync.Db.put, sync.WriteHandle),
        (sync.Db.get, bytes | None),
        (sync.Transaction.put, None),
        (sync.Transaction.commit, sync.WriteHandle | None),
    ],
)
def test_a_blocking_method_is_annotated_with_what_it_returns(method: Any, returns: Any) -> None:
    assert inspect.signature(method).return_annotation == returns
    assert not inspect.iscoroutinefunction(method)
    assert method.__doc__


@pytest.mark.parametrize(
    ("asynchronous", "blocking", "returns"),
    [
        (db.Db.open, sync.Db.open, sync.Db),
        (db_reader.DbReader.open, sync.DbReader.open, sync.DbReader),
        (admin.Admin.__init__, sync.Admin.__init__, None),
        (client.Client.__init__, sync.Client.__init__, None),
    ],
    ids=["Db", "DbReader", "Admin", "Client"],
)
def test_open_has_the_parameters_of_the_asynchronous_one(asynchronous: Any, blocking: Any, returns: Any) -> None:
    assert parameters(blocking) == parameters(asynchronous)
    assert annotations(blocking) == annotations(asynchronous)
    assert inspect.signature(blocking).return_annotation is returns
