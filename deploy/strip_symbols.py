"""Cut symbol tables and debug sections off the shared libraries below a folder: ``strip_symbols.py FOLDER``.

Some wheels carry ten times as much for debuggers as for the loader.  All that the loader reads lies in segments; what
stands in the file after the last of them, the section table included, is for tools only.  Files are cut there, in
place, and keep their times.  Files that are not 64-bit little-endian ELF, or hold nothing after their segments, stay
as they are.
"""

import os
import struct
import sys
from pathlib import Path

MAGIC = b"\x7fELF\x02\x01"
"""ELF, 64 bits, little-endian."""

SECTION_TABLE_AT, SECTION_COUNT_AT = 0x28, 0x3C
"""Where the header names the section table (u64), and how many entries it has and which of them has the names."""


def end_of_segments(image: bytes) -> int:
    """Return the end of the last segment, or the length of a file that is no such ELF."""
    if not image.startswith(MAGIC):
        return len(image)
    (table,) = struct.unpack_from("<Q", image, 0x20)
    size, count = struct.unpack_from("<HH", image, 0x36)
    ends = [table + size * count]
    for place in range(table, table + size * count, size):
        offset, _, _, in_file = struct.unpack_from("<QQQQ", image, place + 8)
        ends.append(offset + in_file)
    return max(ends)


def strip(file: Path) -> int:
    """Cut one file; how many bytes went."""
    image = file.read_bytes()
    end = end_of_segments(image)
    if end >= len(image):
        return 0
    kept = bytearray(image[:end])
    struct.pack_into("<Q", kept, SECTION_TABLE_AT, 0)
    struct.pack_into("<HH", kept, SECTION_COUNT_AT, 0, 0)
    status = file.stat()
    file.write_bytes(kept)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    return len(image) - end


def main() -> None:
    """Strip everything that looks like a shared library."""
    gone = sum(strip(file) for file in Path(sys.argv[1]).rglob("*.so*") if file.is_file() and not file.is_symlink())
    sys.stdout.write(f"{gone / 1e6:.0f} MB of symbols cut off\n")


if __name__ == "__main__":
    main()
