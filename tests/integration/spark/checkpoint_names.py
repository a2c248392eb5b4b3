"""Names of the checkpoints of a database."""

import asyncio
from typing import Any

from shale.env import Env
from shale.protocol.manifest_store import ManifestStore
from shale.store.connect import open_store


def checkpoint_names(place: str) -> list[Any]:
    """Return the names of all checkpoints of the database at a URL, without its writer's."""
    folder, _, root = place.removeprefix("file://").rpartition("/")

    async def read() -> list[Any]:
        stored = await ManifestStore(open_store(f"file://{folder}"), root, Env.system()).load()
        return [each.name for each in stored.value.checkpoints if each.writer_epoch is None]

    return asyncio.run(read())
