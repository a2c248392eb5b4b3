"""How SSTs are written."""

from dataclasses import dataclass

from shale.format.bloom import BloomPolicy
from shale.types import Compression

BLOCK_SIZE_DEFAULT = 4096
MIN_FILTER_KEYS_DEFAULT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SstOptions:
    """``block_size_bytes`` is the target for a block's image; filters are written from ``min_filter_keys`` rows on."""

    block_size_bytes: int = BLOCK_SIZE_DEFAULT
    compression: Compression = Compression.NONE
    min_filter_keys: int = MIN_FILTER_KEYS_DEFAULT
    filter_policies: tuple[BloomPolicy, ...] = (BloomPolicy(),)

    @property
    def filters_need_rows(self) -> bool:
        """Whether a filter is over prefixes, which are functions of users."""
        return any(policy.prefix_extractor is not None for policy in self.filter_policies)
