"""Filter policies and caches: descriptions that builders turn into options of ours."""

from shale.compat.slatedb.callbacks import NamedExtractor, PrefixExtractor
from shale.compat.slatedb.handles import Handle, lowered
from shale.compat.slatedb.options import BloomFilterOptions, FoyerCacheOptions, MokaCacheOptions
from shale.format.bloom import BloomPolicy
from shale.sst.budget import MemoryBudget


class FilterPolicy(Handle):
    """Which filters SSTs get."""

    _policy: BloomPolicy

    @classmethod
    def bloom(cls, bits_per_key: int) -> "FilterPolicy":
        """A bloom filter over whole keys."""
        return cls.bloom_with_options(BloomFilterOptions(bits_per_key=bits_per_key), None)

    @classmethod
    def bloom_with_options(
        cls, options: BloomFilterOptions, prefix_extractor: PrefixExtractor | None
    ) -> "FilterPolicy":
        """A bloom filter over whole keys, prefixes, or both."""
        policy = cls._blank()
        policy._policy = BloomPolicy(
            bits_per_key=lowered(options.bits_per_key, "u32", 32),
            prefix_extractor=None if prefix_extractor is None else NamedExtractor.of(prefix_extractor),
            whole_key=options.whole_key_filtering,
        )
        return policy

    def name(self) -> str:
        """The name under which the filters are stored."""
        return self._policy.name


class DbCache(Handle):
    """Memory for blocks, indexes and filters, which several databases may share.

    SlateDB's implementations differ in how they evict; here all are one budget of bytes.
    """

    _budget: MemoryBudget

    @classmethod
    def new_foyer_cache(cls, options: FoyerCacheOptions) -> "DbCache":
        """A cache of ``max_capacity`` bytes."""
        return cls._of(options.max_capacity)

    @classmethod
    def new_moka_cache(cls, options: MokaCacheOptions) -> "DbCache":
        """A cache of ``max_capacity`` bytes."""
        return cls._of(options.max_capacity)

    @classmethod
    def new_split_cache(cls, block_cache: "DbCache", meta_cache: "DbCache") -> "DbCache":
        """A cache as large as both; blocks and the rest share it."""
        return cls._of(block_cache._budget.capacity_bytes + meta_cache._budget.capacity_bytes)

    @classmethod
    def _of(cls, capacity_bytes: int) -> "DbCache":
        cache = cls._blank()
        cache._budget = MemoryBudget(lowered(capacity_bytes, "u64", 64))
        return cache


def policy_of(policy: FilterPolicy) -> BloomPolicy:
    """The policy of ours."""
    return policy._policy


def budget_of(cache: DbCache) -> MemoryBudget:
    """The budget of ours."""
    return cache._budget
