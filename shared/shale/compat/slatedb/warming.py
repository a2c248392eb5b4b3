"""SSTs in and out of the cache."""

from shale.compat.slatedb.arguments import bounds_of
from shale.compat.slatedb.choices import CacheTarget
from shale.compat.slatedb.errors import invalid
from shale.compat.slatedb.state_values import SsTableId
from shale.engine.db_cache import DbCache
from shale.engine.warm import CacheTarget as EngineTarget
from shale.types import Ulid


def sst_id_of(sst_id: SsTableId) -> str:
    """The id of an SST.

    Raises:
        Error: not a ULID.
    """
    if Ulid.parse(sst_id.value.upper()) is None:
        raise invalid(f"invalid SST ULID: {sst_id.value!r}")
    return sst_id.value.upper()


async def warm(cache: DbCache, sst_id: SsTableId, targets: list[CacheTarget]) -> None:
    """Bring in one target after the other.

    Raises:
        Error: not a ULID, or an impossible range.
    """
    wanted = sst_id_of(sst_id)
    for target in targets:
        match target:
            case CacheTarget.DATA():
                start, stop = bounds_of(target.range)
                await cache.warm_sst(wanted, start=start, stop=stop, targets=[EngineTarget.DATA])
            case CacheTarget.FILTERS():
                await cache.warm_sst(wanted, targets=[EngineTarget.FILTERS])
            case CacheTarget.INDEX():
                await cache.warm_sst(wanted, targets=[EngineTarget.INDEX])
            case _:
                await cache.warm_sst(wanted, targets=[EngineTarget.STATS])
