"""The statistics of ``shale sst stats``, from the metadata of the SST alone."""

from typing import TYPE_CHECKING, Any

from shale.admin.json_values import b64
from shale.core.units import format_size
from shale.errors import CorruptionError
from shale_cli.framework.session import CliSession

if TYPE_CHECKING:
    from shale.store.port import ObjectStore
    from shale.types import Sst


async def read_stats(
    session: CliSession, store: "ObjectStore", sst: "Sst", key: str
) -> tuple[dict[str, Any], list[tuple[str, object]]]:
    """Return the statistics as JSON, and as rows of a table.

    Raises:
        CorruptionError: the SST is missing, or its metadata is damaged.
    """
    from shale.sst.meta import decode_meta, meta_span

    info = sst.info
    start, end = meta_span(info, key, filters=False)
    stored = await store.get_range(key, start, end)
    if stored is None:
        raise CorruptionError("the SST is missing", path=key)
    meta = decode_meta(info, stored, start, filters=False, path=key, transformer=session.block_transformer)
    blocks = len(meta.index)
    counts = meta.stats
    raw = None if counts is None else counts.raw_key_size + counts.raw_val_size
    data: dict[str, Any] = {
        "id": str(sst.id),
        "object": key,
        "format_version": sst.format_version,
        "compression": info.compression.name.lower(),
        "first_key_b64": None if info.first_entry is None else b64(info.first_entry),
        "last_key_b64": None if info.last_entry is None else b64(info.last_entry),
        "bytes": info.sections_end,
        "data_bytes": info.data_len,
        "index_bytes": info.index_len,
        "filter_bytes": info.filter_len,
        "stats_bytes": info.stats_len,
        "blocks": blocks,
        "filter_format": info.filter_format.name.lower() if info.filter_len else None,
        "rows": None
        if counts is None
        else {"puts": counts.num_puts, "deletes": counts.num_deletes, "merges": counts.num_merges},
        "raw_key_bytes": None if counts is None else counts.raw_key_size,
        "raw_value_bytes": None if counts is None else counts.raw_val_size,
        "raw_to_data_ratio": None if raw is None or not info.data_len else round(raw / info.data_len, 3),
    }
    return data, _rows(session, sst, data)


def _rows(session: CliSession, sst: "Sst", data: dict[str, Any]) -> list[tuple[str, object]]:
    show, info = session.output.show, sst.info
    rows: list[tuple[str, object]] = [(name, data[name]) for name in ("id", "object", "format_version", "compression")]
    rows += [
        ("first_key", None if info.first_entry is None else show(info.first_entry)),
        ("last_key", None if info.last_entry is None else show(info.last_entry)),
    ]
    rows += [
        (name, format_size(data[name]))
        for name in ("bytes", "data_bytes", "index_bytes", "filter_bytes", "stats_bytes")
    ]
    rows.append(("blocks", data["blocks"]))
    if data["rows"] is not None:
        rows += list(data["rows"].items())
        rows += [(name, format_size(data[name])) for name in ("raw_key_bytes", "raw_value_bytes")]
        rows.append(("raw_to_data_ratio", data["raw_to_data_ratio"]))
    return rows
