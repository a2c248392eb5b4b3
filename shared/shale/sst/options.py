"""The options of writing SSTs."""

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError
from shale.format.blocks.output import MERGED_PART_BYTES
from shale.format.blocks.transform import BlockTransformer
from shale.format.sst.filter_policy import BloomPolicy
from shale.types import Compression

BLOCK_SIZE_DEFAULT = 4096
BLOCK_SIZE_MAX = 65_536
"""Places in a block are stored in 16 bits: lookups would miss rows after them (docs/reference/format.md 7)."""
MIN_FILTER_KEYS_DEFAULT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SstOptions:
    """The options of writing SSTs.

    Args:
        block_size_bytes: target size of a block.
        compression: codec of all sections.
        min_filter_keys: an SST with fewer rows has no filter.
        filter_policies: the filters to write.
        merged_part_bytes: size of the parts that a merge of stored blocks returns.
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
        """Whether a filter holds prefixes, which user functions extract."""
        return any(policy.prefix_extractor is not None for policy in self.filter_policies)
