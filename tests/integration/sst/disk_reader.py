"""A process that reads random ranges through a disk cache for ever, and stops at the first wrong byte.

Arguments: directory of the cache, seed, and a bound of the size of files, or 0.
"""

import resource
import sys
from random import Random

import anyio

from shale.env import Env, InlineCpu, SystemClock
from shale.sst.disk_cache import DiskCache
from shale.sst.disk_cache_options import DiskCacheOptions
from shale.sst.reads.part_reader import PartReader

PART = 64 << 10
OBJECTS = 40
SIZE = 5 * PART - 1000
MAX_BYTES = 60 * PART


def content(number: int) -> bytes:
    return Random(number).randbytes(SIZE)


async def main(directory: str, seed: int) -> None:
    objects = [content(number) for number in range(OBJECTS)]
    env = Env(SystemClock(), Random(seed), InlineCpu())
    cache = DiskCache(DiskCacheOptions(directory, MAX_BYTES, PART), env.clock)
    reader = PartReader(cache, "s3://bucket", env)
    rng = Random(seed)
    reads = 0
    while True:
        number = rng.randrange(OBJECTS)
        start = rng.randrange(SIZE - 1)
        end = min(SIZE, start + rng.randint(1, 2 * PART))

        async def fetch(first: int, last: int, whole: bytes = objects[number]) -> memoryview:
            return memoryview(whole)[first:last]

        data = await reader.read(f"db/compacted/{number}.sst", start, end, SIZE, fetch)
        assert data == objects[number][start:end], (number, start, end)
        reads += 1
        if reads % 50 == 0:
            print(reads, reader.hits, cache.errors, flush=True)


if __name__ == "__main__":
    if limit := int(sys.argv[3]):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    anyio.run(main, sys.argv[1], int(sys.argv[2]))
