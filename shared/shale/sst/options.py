"""How SSTs are written."""

from dataclasses import dataclass

from shale.errors import InvalidRequestError
from shale.format.block_writer import MERGED_PART_BYTES
from shale.format.bloom import BloomPolicy
from shale.format.transform import BlockTransformer
from shale.types import Compression

BLOCK_SIZE_DEFAULT = 4096
BLOCK_SIZE_MAX = 65_536
"""Places in a block are stored in 16 bits: lookups would miss what lies behind (docs/format.md 7)."""
MIN_FILTER_KEYS_DEFAULT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SstOptions:
    """How SSTs are written.

    Args:
        block_size_bytes: target for a block's image.
        min_filter_keys: filters are written from so many rows on.
        merged_part_bytes: size of the parts that a merge of stored blocks hands out.
        transformer: applied to every section after compression.
    """

    block_size_bytes: int = BLOCK_SIZE_DEFAULT
    compression: Compression = Compression.NONE
    min_filter_keys: int = MIN_FILTER_KEYS_DEFAULT
    filter_policies: tuple[BloomPolicy, ...] = (BloomPolicy(),)
    merged_part_bytes: int = MERGED_PART_BYTES
    transformer: BlockTransformer | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.block_size_bytes <= BLOCK_SIZE_MAX:
            raise InvalidRequestError(f"block_size_bytes must be between 1 and {BLOCK_SIZE_MAX}")

    @property
    def filters_need_rows(self) -> bool:
        """Whether a filter is over prefixes, which are functions of users."""
        return any(policy.prefix_extractor is not None for policy in self.filter_policies)
