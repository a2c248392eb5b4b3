"""Turns a backup store into what an earlier release has written: names of copies without the id of a backup."""

import re
from collections.abc import Mapping
from typing import Any

from shale.backup.document import seal, unseal
from shale.store.memory import MemoryStore

_ID = re.compile(r"-[0-9A-HJKMNP-TV-Z]{26}(?=\.sst$|$)")


def earlier_name(name: str) -> str:
    """Return the name of a copy as earlier releases gave it."""
    return _ID.sub("", name)


async def use_earlier_names(store: MemoryStore, root: str) -> None:
    """Rename all copies, in documents, plans and lists of copied objects, too."""
    for meta in await store.list(f"{root}/objects/"):
        found = await store.get(meta.key)
        assert found is not None
        await store.delete(meta.key)
        assert earlier_name(meta.key) != meta.key
        await store.put(earlier_name(meta.key), bytes(found.data))
    for folder in ("backups", "in-progress"):
        for meta in await store.list(f"{root}/{folder}/"):
            found = await store.get(meta.key)
            assert found is not None
            await store.put(meta.key, seal(_renamed(unseal(found.data, path=meta.key))))


def _renamed(fields: Mapping[str, Any]) -> dict[str, Any]:
    changed = {name: value for name, value in fields.items() if name != "schema_version"}
    if "objects" in changed:
        changed["objects"] = [{**each, "key": earlier_name(each["key"])} for each in changed["objects"]]
    if "ssts" in changed:
        changed["ssts"] = sorted({earlier_name(each) for each in changed["ssts"]})
    return changed
