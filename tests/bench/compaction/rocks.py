"""Lets RocksDB compact four L0 files with the same rows and prints its seconds of CPU and of wall time.

Usage: ``python -m tests.bench.compaction.rocks prepare|compact DIRECTORY ROWS VALUE_BYTES``.  As ours: bloom filters of
ten bits, no compression, outputs of 256 MiB, two threads for one compaction.  The rows stand in L0 before the clock
starts, and closing, which would flush, comes after it has stopped.
"""

import sys
from time import perf_counter, process_time
from typing import Any

from rocksdict import AccessType, BlockBasedOptions, DBCompressionType, Options, Rdict, WriteBatch, WriteOptions

from tests.bench.compaction.load import SOURCES, Load
from tests.bench.rows import KEY_BYTES

_MIB = 1 << 20


def open_rocks(directory: str, load: Load) -> Any:
    """Open a database that compacts only on request."""
    blocks = BlockBasedOptions()
    blocks.set_bloom_filter(10, False)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_disable_auto_compactions(True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.none())
    options.set_write_buffer_size(load.raw_bytes + 1024 * _MIB)
    options.set_target_file_size_base(256 * _MIB)
    options.set_max_bytes_for_level_base(2 * load.raw_bytes)
    options.set_max_compaction_bytes(100 * load.raw_bytes)
    options.set_max_background_jobs(2)
    options.set_max_subcompactions(2)
    options.set_compaction_readahead_size(4 * _MIB)
    return Rdict(directory, options, access_type=AccessType.read_write())


def prepare(directory: str, load: Load) -> None:
    """Four files in L0."""
    db = open_rocks(directory, load)
    unlogged = WriteOptions()
    unlogged.disable_wal = True
    for number in range(SOURCES):
        for rows in load.source(number):
            keys, values = rows.key_bytes.tobytes(), rows.val_bytes.tobytes()
            batch = WriteBatch(raw_mode=True)
            for row in range(len(rows)):
                value_at = row * load.value_bytes
                key_at = row * KEY_BYTES
                batch.put(keys[key_at : key_at + KEY_BYTES], values[value_at : value_at + load.value_bytes])
            db.write(batch, unlogged)
        db.flush()
    assert db.property_value("rocksdb.num-files-at-level0") == str(SOURCES)
    db.close()


def compact(directory: str, load: Load) -> None:
    """All of it, and print what it cost."""
    db = open_rocks(directory, load)
    cpu, wall = process_time(), perf_counter()
    db.compact_range(None, None)
    sys.stdout.write(f"{process_time() - cpu} {perf_counter() - wall}\n")
    assert db.property_value("rocksdb.num-files-at-level0") == "0"
    db.close()


if __name__ == "__main__":
    action, where, *numbers = sys.argv[1:]
    {"prepare": prepare, "compact": compact}[action](where, Load(*map(int, numbers)))
