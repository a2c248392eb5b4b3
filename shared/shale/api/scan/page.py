"""One page of a scan: a complete document, for clients that read no streams."""

from collections.abc import Sequence
from typing import NamedTuple

from shale.api.fields import to_base64
from shale.engine.scan.scan import Scan
from shale.types import Row

PAGE_ROWS = 1000
"""Rows of a page without a limit of its own."""
PAGE_BYTES_MAX = 8 << 20
"""A page ends after this many bytes of keys and values, or after its first row."""


class Page(NamedTuple):
    """Rows of a range; ``has_more``: the page ended before the range did."""

    rows: Sequence[Row]
    has_more: bool


async def read_page(scan: Scan, limit: int, *, bytes_max: int = PAGE_BYTES_MAX) -> Page:
    """Read the rows of one page, and close the scan.

    Args:
        scan: a scan with the same limit.
        limit: the largest number of rows.
        bytes_max: the page ends after so many bytes, if it has not ended before.

    Raises:
        ShaleError: the scan fails; no row is returned then.
    """
    rows: list[Row] = []
    left_bytes = min(bytes_max, PAGE_BYTES_MAX)
    try:
        while left_bytes > 0 and (more := await scan.next_batch(limit, bytes_max=left_bytes)):
            rows += more
            left_bytes -= sum(len(row.key) + len(row.value) for row in more)
    finally:
        scan.close()
    return Page(rows, has_more=bool(rows) and (left_bytes <= 0 or len(rows) >= limit))


def page_fields(page: Page, resume: str | None, *, packed: bool) -> dict[str, object]:
    """Return the document of a page; keys and values are base64 in JSON, binary in msgpack."""
    return {"rows": [_row_fields(row, packed=packed) for row in page.rows], "resume": resume}


def _row_fields(row: Row, *, packed: bool) -> dict[str, object]:
    fields: dict[str, object] = {
        "key": row.key if packed else to_base64(row.key).decode(),
        "value": row.value if packed else to_base64(row.value).decode(),
        "seq": row.seq,
    }
    if row.create_ts is not None:
        fields["create_ts"] = row.create_ts
    if row.expire_ts is not None:
        fields["expire_ts"] = row.expire_ts
    return fields
