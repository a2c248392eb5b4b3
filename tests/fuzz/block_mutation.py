"""Changes of block images by their parts: restarts, their count, numbers at the head of a row, flags, and stamps."""

import random
from struct import Struct
from struct import error as struct_error

from shale.errors import CorruptionError
from shale.format.blocks.plain import decode_block_plain, encode_block_plain, varint
from shale.types import Entry
from tests.fuzz.mutation import NUMBERS, mutate_bytes, number_bytes, put

_U16 = Struct(">H")


def mutate_block(rng: random.Random, image: bytes) -> bytes:
    """Return a block image of version 2 with one part changed."""
    change = rng.choice((_restart, _count, _row_number, _row_number, _row_number, _rows, mutate_bytes))
    try:
        return change(rng, image)
    except (struct_error, IndexError, ValueError, CorruptionError, OverflowError):
        return mutate_bytes(rng, image)


def _restarts(image: bytes) -> tuple[int, list[int]]:
    """Return where the rows end, and the restarts."""
    (count,) = _U16.unpack_from(image, len(image) - 2)
    end = len(image) - 2 - 2 * count
    if end <= 0 or not count:
        raise ValueError
    return end, [_U16.unpack_from(image, end + 2 * number)[0] for number in range(count)]


def _restart(rng: random.Random, image: bytes) -> bytes:
    end, restarts = _restarts(image)
    new = rng.choice((0, end, end - 1, end + 1, 0xFFFF, rng.choice(restarts), rng.randrange(end)))
    return put(image, end + 2 * rng.randrange(len(restarts)), _U16.pack(new & 0xFFFF))


def _count(rng: random.Random, image: bytes) -> bytes:
    _, restarts = _restarts(image)
    most = len(image) // 2 - 1
    new = rng.choice((0, 1, len(restarts) + 1, len(restarts) - 1, most, most + 1, 0xFFFF))
    return put(image, len(image) - 2, _U16.pack(new & 0xFFFF))


def _row_number(rng: random.Random, image: bytes) -> bytes:
    """Replace one of the three numbers before a row's key by a number of any length, also an overlong one."""
    end, restarts = _restarts(image)
    at = rng.choice(restarts)
    for _ in range(rng.randrange(20)):
        following = _next_row(image, at)
        if following >= end:
            break
        at = following
    starts = [at]
    for _ in range(2):
        starts.append(_after_varint(image, starts[-1]))
    start = rng.choice(starts)
    value = rng.choice((*NUMBERS, end, end - start, len(image)))
    new = rng.choice((varint(max(value, 0)), b"\x80" * rng.randrange(1, 6) + b"\x01", b"\xff" * 5))
    if rng.random() < 0.5:
        return put(image, start, new)
    return image[:start] + new + image[_after_varint(image, start) :]


def _after_varint(image: bytes, at: int) -> int:
    while image[at] >= 0x80:
        at += 1
    return at + 1


def _next_row(image: bytes, at: int) -> int:
    values = []
    for _ in range(3):
        after = _after_varint(image, at)
        values.append(sum((byte & 0x7F) << 7 * place for place, byte in enumerate(image[at:after])))
        at = after
    flags = image[at + values[1] + values[2] + 8]
    return at + values[1] + values[2] + 9 + 8 * ((flags >> 1 & 1) + (flags >> 2 & 1))


def _rows(rng: random.Random, image: bytes) -> bytes:
    """Decode, change a row, and encode again: order, flags, sizes and stamps that no writer makes."""
    rows = decode_block_plain(image, 2)
    number = rng.randrange(len(rows))
    row = rows[number]
    match rng.randrange(6):
        case 0:
            rng.shuffle(rows)
        case 1:
            rows[number] = row._replace(flags=rng.randrange(256), create_ts=-1, expire_ts=2**63 - 1)
        case 2:
            rows[number] = row._replace(seq=int.from_bytes(number_bytes(rng, 8), "big"))
        case 3:
            rows[number] = row._replace(key=row.key * rng.choice((0, 2, 100)))
        case 4:
            rows[number] = row._replace(value=rng.randbytes(rng.choice((0, 1, 300, 70_000))))
        case _:
            rows.append(Entry(row.key, b"again", row.seq, 0))
    return encode_block_plain(rows)
