"""A process that reads and creates numbered files, and records its requests."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from shale.env import Env, InlineCpu
from shale.errors import ShaleError, UnavailableError
from shale.format.names import manifest_key, parse_manifest_key
from shale.protocol.options import ProtocolOptions
from shale.protocol.sequenced import SequencedFiles
from shale.protocol.versioned import Namespace, database_namespace
from shale.store.memory import MemoryStore
from shale.store.port import GetResult, ObjectMeta
from shale.telemetry.metrics import Metrics
from tests.clocks import ManualClock
from tests.unit.protocol.draws import Draws

NAMESPACE: Namespace[bytes] = database_namespace(
    "db", "manifest", key=manifest_key, parse=parse_manifest_key, encode=bytes, decode=lambda data, _path: bytes(data)
)
STALENESS_S = 60.0


class Requests(MemoryStore):
    """Records requests, and lets a test change what the next ones find."""

    def __init__(self, clock: ManualClock, url: str = "memory:///") -> None:
        super().__init__(clock, url=url)
        self.clock = clock
        self.made: list[str] = []
        self.get_takes_s = 0.0
        self.lists: list[list[int]] = []
        """The ids of the next listings, instead of the true ones."""
        self.broken: set[str] = set()

    async def get(self, key: str) -> GetResult | None:
        self.made.append(f"get {parse_manifest_key('db', key)}")
        self.clock.sleep(self.get_takes_s)
        return await super().get(key)

    async def head(self, key: str) -> ObjectMeta | None:
        self.made.append(f"head {parse_manifest_key('db', key)}")
        return await super().head(key)

    async def put(self, key: str, *args: Any, **options: Any) -> Any:
        self.made.append(f"put {parse_manifest_key('db', key)}")
        return await super().put(key, *args, **options)

    async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        self.made.append("list")
        if self.lists:
            yield [ObjectMeta(manifest_key("db", id_), 1, 7) for id_ in self.lists.pop(0)]
            return
        async for page in super().list_pages(prefix, after=after):
            yield page

    async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
        await super().delete_many([key for key in keys if key not in self.broken])
        return {key: UnavailableError("broken") for key in keys if key in self.broken}


class Process:
    """One process: files of a database, its clock, and the delays that it draws."""

    def __init__(self, url: str = "memory:///") -> None:
        self.clock = ManualClock()
        self.store = Requests(self.clock, url)
        self.draws = Draws()
        self.metrics = Metrics()
        self.files = SequencedFiles(
            self.store,
            NAMESPACE,
            Env(self.clock, self.draws, InlineCpu()),
            self.metrics,
            ProtocolOptions(probe_max_staleness_s=STALENESS_S),
        )

    async def written(self, *ids: int) -> None:
        """Write files as another process."""
        for id_ in ids:
            await self.store.put(manifest_key("db", id_), b"%d" % id_)
        self.store.made.clear()

    def requests(self) -> list[str]:
        """Return the requests since the last call."""
        made, self.store.made = self.store.made, []
        return made

    async def latest(self, *, after_conflict: bool = False) -> int | None:
        found = await (self.files.read_latest_after_conflict if after_conflict else self.files.read_latest_unchecked)()
        if found is not None:
            assert bytes(found.data) == b"%d" % found.id
        return None if found is None else found.id

    def reads(self) -> dict[str, float]:
        """Return the counters of reads of the newest version, and the probes that they took."""

        def value(name: str, **labels: str) -> float:
            return self.metrics.registry.get_sample_value(name, {"db": "", "resource": "manifest", **labels}) or 0

        reads = "slatedb_sequenced_latest_reads_total"
        found = {result: value(reads, result=result) for result in ("hit", "cold", "list_fallback")}
        probes = "slatedb_sequenced_read_probes"
        return found | {"reads": value(f"{probes}_count"), "probes": value(f"{probes}_sum")}
