"""Filter policies and caches, which builders convert to the engine's options; loading SSTs into a cache."""

from shale.compat.slatedb.arguments import bounds_of
from shale.compat.slatedb.callbacks import NamedExtractor, PrefixExtractor
from shale.compat.slatedb.errors import invalid
from shale.compat.slatedb.handles import Handle, unsigned
from shale.compat.slatedb.types.enums import CacheTarget
from shale.compat.slatedb.types.options import BloomFilterOptions, FoyerCacheOptions, MokaCacheOptions
from shale.compat.slatedb.types.states import SsTableId
from shale.engine.db_cache import DbCache as EngineCache
from shale.engine.warm import CacheTarget as EngineTarget
from shale.format.sst.filter_policy import BloomPolicy
from shale.sst.budget import MemoryBudget
from shale.types import Ulid


class FilterPolicy(Handle):
    """The filters of SSTs."""

    _policy: BloomPolicy

    @classmethod
    def bloom(cls, bits_per_key: int) -> "FilterPolicy":
        """Return a Bloom filter over whole keys."""
        return cls.bloom_with_options(BloomFilterOptions(bits_per_key=bits_per_key), None)

    @classmethod
    def bloom_with_options(
        cls, options: BloomFilterOptions, prefix_extractor: PrefixExtractor | None
    ) -> "FilterPolicy":
        """Return a Bloom filter over whole keys, prefixes, or both."""
        policy = cls._blank()
        policy._policy = BloomPolicy(
            bits_per_key=unsigned(options.bits_per_key, "u32", 32),
            prefix_extractor=None if prefix_extractor is None else NamedExtractor.of(prefix_extractor),
            whole_key=options.whole_key_filtering,
        )
        return policy

    def name(self) -> str:
        """Return the name under which the filters are stored."""
        return self._policy.name


class DbCache(Handle):
    """Memory for blocks, indexes and filters, which several databases may share.

    SlateDB's implementations differ in their eviction; here all are one budget of bytes.
    """

    _budget: MemoryBudget

    @classmethod
    def new_foyer_cache(cls, options: FoyerCacheOptions) -> "DbCache":
        """Return a cache of ``max_capacity`` bytes."""
        return cls._of(options.max_capacity)

    @classmethod
    def new_moka_cache(cls, options: MokaCacheOptions) -> "DbCache":
        """Return a cache of ``max_capacity`` bytes."""
        return cls._of(options.max_capacity)

    @classmethod
    def new_split_cache(cls, block_cache: "DbCache", meta_cache: "DbCache") -> "DbCache":
        """Return a cache as large as both; blocks and metadata share it."""
        return cls._of(block_cache._budget.capacity_bytes + meta_cache._budget.capacity_bytes)

    @classmethod
    def _of(cls, capacity_bytes: int) -> "DbCache":
        cache = cls._blank()
        cache._budget = MemoryBudget(unsigned(capacity_bytes, "u64", 64))
        return cache


def policy_of(policy: FilterPolicy) -> BloomPolicy:
    """Return the engine's policy."""
    return policy._policy


def budget_of(cache: DbCache) -> MemoryBudget:
    """Return the engine's budget."""
    return cache._budget


def sst_id_of(sst_id: SsTableId) -> str:
    """Return the id of an SST.

    Raises:
        Error: not a ULID.
    """
    if Ulid.parse(sst_id.value.upper()) is None:
        raise invalid(f"invalid SST ULID: {sst_id.value!r}")
    return sst_id.value.upper()


async def warm(cache: EngineCache, sst_id: SsTableId, targets: list[CacheTarget]) -> None:
    """Load one target after the other.

    Raises:
        Error: not a ULID, or an invalid range.
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
