"""Observes the database from outside: the objects in the store, and the metrics of the daemons."""

import httpx

from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import InvalidObjectState
from shale.format.boundary import decode_boundary
from shale.format.names import boundary_key
from shale.protocol.manifest_store import ManifestStore
from shale.store.port import ObjectStore
from shale.types import Manifest
from shale_cli.demo.daemons import Daemon

_NAMESPACES = ("manifest", "compactions", "wal", "compacted")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseShape:
    """The shape of the database at one time."""

    manifest_id: int
    writer_epoch: int
    l0_count: int
    run_count: int
    objects: dict[str, int]

    @property
    def object_count(self) -> int:
        """The number of all objects of the database."""
        return sum(self.objects.values())


class Observer:
    """Reads the store while the daemons run; writes nothing."""

    def __init__(self, store: ObjectStore, path: str, env: Env) -> None:
        self._store = store
        self._path = path
        self._manifests = ManifestStore(store, path, env)

    async def shape(self) -> DatabaseShape:
        """Return the numbers of the latest manifest, and the object counts."""
        latest = await self._manifests.try_read_latest()
        manifest = latest.value if latest else Manifest()
        return DatabaseShape(
            manifest_id=latest.id if latest else 0,
            writer_epoch=manifest.writer_epoch,
            l0_count=len(manifest.tree.l0),
            run_count=len(manifest.tree.compacted),
            objects={name: len(await self._store.list(f"{self._path}/{name}/")) for name in _NAMESPACES},
        )

    async def highest_id(self, namespace: str) -> int:
        """Return the highest id in ``manifest`` or ``compactions``."""
        listed = await self._store.list(f"{self._path}/{namespace}/")
        if not listed:
            raise InvalidObjectState(f"{self._path}/{namespace}/ is empty")
        return max(int(meta.key.rpartition("/")[2].partition(".")[0]) for meta in listed)

    async def boundary(self, namespace: str) -> int:
        """Return the boundary of a namespace; 0 if it does not exist yet."""
        got = await self._store.get(boundary_key(self._path, namespace))
        return 0 if got is None else decode_boundary(bytes(got.data))


async def scrape(daemon: Daemon, name: str) -> dict[str, float]:
    """Return the samples of one metric by their label text, for example ``{'{db="x",resource="wal"}': 3.0}``."""
    async with httpx.AsyncClient() as client:
        text = (await client.get(f"{daemon.admin_url}/metrics", timeout=5)).text
    samples: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith((name + "{", name + " ")):
            labels, _, value = line[len(name) :].rpartition(" ")
            samples[labels] = float(value)
    return samples


async def deleted_by_gc(daemon: Daemon) -> dict[str, int]:
    """Return the number of objects that this gc deleted, by resource."""
    samples = await scrape(daemon, "slatedb_gc_deleted_objects_total")
    return {_label(labels, "resource"): int(value) for labels, value in samples.items()}


def _label(labels: str, name: str) -> str:
    return labels.partition(f'{name}="')[2].partition('"')[0]
