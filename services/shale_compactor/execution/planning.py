"""Which key ranges a job is cut into: reads the block indexes of its inputs (docs/protocol.md 6.12)."""

import anyio

from shale.sst.reader import SstReader
from shale.types import KeyRange
from shale_compactor.execution.job import Job
from shale_compactor.execution.subcompactions import Anchor, plan_ranges, sample_anchors
from shale_compactor.first_error import first_error

_READS_MAX = 16


async def ranges_of(job: Job, reader: SstReader, *, max_subcompactions: int) -> tuple[KeyRange, ...]:
    """Ranges of similar size that cover all keys.

    Raises:
        CorruptionError: an index is malformed.
        UnavailableError: the store gave up.
    """
    if max_subcompactions <= 1:
        return plan_ranges([], max_subcompactions=1, largest_input_bytes=0)
    anchors: list[Anchor] = []
    reads = anyio.Semaphore(_READS_MAX)

    async def sample(index: int) -> None:
        view = job.views[index]
        async with reads:
            block_index = (await reader.meta(view.sst)).index
        data_end = view.sst.info.data_len
        anchors.extend(sample_anchors(block_index.separators, block_index.offsets, data_end, view.effective_range))

    try:
        async with anyio.create_task_group() as tasks:
            for index in range(len(job.views)):
                tasks.start_soon(sample, index)
    except BaseExceptionGroup as group:
        raise first_error(group) from group
    return plan_ranges(
        anchors,
        max_subcompactions=max_subcompactions,
        largest_input_bytes=max((view.sst.estimated_size_bytes for view in job.views), default=0),
    )
