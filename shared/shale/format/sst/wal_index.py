"""The index of a WAL file."""

from shale.format.blocks.section import open_section
from shale.format.blocks.transform import BlockTransformer
from shale.format.sst.image_limits import IMAGE_BYTES_USUAL
from shale.format.sst.index import BlockIndex, decode_index
from shale.types import SstInfo


def decode_wal_index(
    data: memoryview, info: SstInfo, path: str, transformer: BlockTransformer | None, *, start: int = 0
) -> BlockIndex:
    """Unpack and decode the index of a WAL file, which has no stats that would allow a large one.

    Args:
        data: the file from ``start`` on.
        info: the info of the file; the index is not before ``start``.
        path: the object's name, for errors.
        transformer: the transformer that the file was written with.
        start: where the data begins in the file.

    Raises:
        CorruptionError: the section is damaged, or expands to more than an index of a WAL file can have.
    """
    section = data[info.index_offset - start : info.index_offset - start + info.index_len]
    image = open_section(
        section,
        info.compression,
        path,
        info.index_offset,
        transformer=transformer,
        image_max=IMAGE_BYTES_USUAL,
        kind="index",
    )
    return decode_index(image, data_len=info.data_len, path=path, offset=info.index_offset)
