"""Reads everything after the end of all other clients: ``python -m tests.soak.clients.final --config FILE``.

The writer's rows go to the history as reads of the session ``final``.  The readers of both libraries must see the same
rows; what differs is printed as JSON.
"""

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import Any

import msgpack

from tests.soak.clients.http_requests import DURABLE, PACKED, HttpRequests, rows_of
from tests.soak.clients.session import ClientSession, Result, Shared
from tests.soak.history import journal
from tests.soak.history.operation import FINAL
from tests.soak.history.values import elements_in, name_in
from tests.soak.stack.daemons import MERGE_OPERATOR

WRITER_S, READERS_S, PAUSE_S = 90.0, 120.0, 1.0
SHOWN_MAX = 5
Rows = dict[str, bytes]


class FinalSession(ClientSession):
    """Turns the rows of the database into operations."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared, FINAL, "http")
        self._http = HttpRequests(shared, "writers")

    def scan(self) -> tuple[Rows, str, float]:
        """Scan the whole database through the writer; return the rows, the instance and the start."""
        deadline = time.monotonic() + WRITER_S
        while True:
            start = time.monotonic()
            result, content, status = self._http.ask("POST", "/v1/scan", msgpack.packb({}), {**PACKED, **DURABLE})
            rows = rows_of(content) if result.outcome == "ok" else None
            if rows is not None:
                return rows, result.served_by, start
            if time.monotonic() > deadline:
                raise SystemExit(f"no writer answers at the end: status {status} {content[:200]!r}")
            time.sleep(PAUSE_S)

    def note_all(self, rows: Rows, keys: set[str], served_by: str, start: float) -> None:
        """Record what the database holds, and the absence of what it does not hold."""
        groups: dict[str, dict[str, bytes | None]] = {}
        for key in sorted(keys | set(rows)):
            value = rows.get(key)
            kind = key.split("/", 1)[0]
            if kind in ("list", "group"):
                groups.setdefault(key.rpartition("/")[0] + "/", {})[key] = value
            elif kind == "counter":
                self.note("read", key, None, Result("ok", int(value or 0), served_by), start)
            else:
                self.note("read", key, None, Result("ok", name_in(value), served_by), start)
        for group, members in groups.items():
            present = {key: value for key, value in members.items() if value is not None}
            if group.startswith("group/"):
                found: Any = {key: name_in(value) for key, value in present.items()}
                self.note("scan", group, None, Result("ok", found, served_by), start)
            else:
                steps = [["r", key, elements_in(value)] for key, value in members.items()]
                self.note("txn", group, None, Result("ok", steps, served_by), start)


def keys_of(history: Path) -> set[str]:
    """Return the keys that any client wrote."""
    found: set[str] = set()
    for operation in journal.operations(history):
        if operation.function == "txn":
            found.update(step[1] for step in operation.value or () if step[0] == "append")
        elif operation.function in ("batch", "scan"):
            found.add(f"{operation.key}0")
        else:
            found.add(operation.key)
    return found


async def shale_rows(url: str) -> Rows:
    """Scan the database with ``shale.DbReader``."""
    import shale

    async with shale.DbReader.open(url, merge_operator=MERGE_OPERATOR) as reader:
        return {row.key.decode(): bytes(row.value) async for row in reader.scan()}


async def wheel_rows(url: str) -> Rows:
    """Scan the database with the reader of the slatedb package."""
    from slatedb import uniffi as slate

    from tests.interop.slatedb_databases import EVERYTHING, Concatenate
    from tests.soak.clients.wheel import open_store, root_of

    builder = slate.DbReaderBuilder(root_of(url), open_store(url))
    builder.with_merge_operator(Concatenate())
    reader = await builder.build()
    iterator = await reader.scan(EVERYTHING)
    found = {}
    while (row := await iterator.next()) is not None:
        found[bytes(row.key).decode()] = bytes(row.value)
    await reader.shutdown()
    return found


def differences(expected: Rows, found: Rows) -> list[str]:
    """Return the keys whose values differ; a row with a lifetime may expire between two reads."""
    keys = sorted(
        key
        for key in set(expected) | set(found)
        if expected.get(key) != found.get(key)
        and not (key.startswith("expiring/") and (key not in expected or key not in found))
    )
    return [f"{key}: {_short(expected.get(key))} at the writer, {_short(found.get(key))} here" for key in keys]


def _short(value: bytes | None) -> str:
    return "nothing" if value is None else repr(value[:40])


async def compare(url: str, expected: Rows, *, with_wheel: bool) -> dict[str, list[str]]:
    """Compare both readers with the writer; a fresh reader replays the whole WAL."""
    report = {}
    for name, read in (("DbReader", shale_rows), ("slatedb's DbReader", wheel_rows)):
        if name == "DbReader" or with_wheel:
            try:
                found = differences(expected, await asyncio.wait_for(read(url), READERS_S))
            except TimeoutError:
                report[name] = [f"it did not read all rows within {READERS_S:g} s"]
            else:
                report[name] = [f"{len(found)} differences", *found[:SHOWN_MAX]] if found else []
    return report


def main() -> None:
    """Read everything and print a summary."""
    parser = argparse.ArgumentParser(prog="tests.soak.clients.final")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--with-wheel", action="store_true")
    arguments = parser.parse_args()
    config = json.loads(arguments.config.read_text())
    shared = Shared.of(config, FINAL)
    session = FinalSession(shared)
    keys = keys_of(shared.folder)
    rows, served_by, start = session.scan()
    session.note_all(rows, keys, served_by, start)
    report = asyncio.run(compare(shared.url, rows, with_wheel=arguments.with_wheel))
    print(json.dumps({"rows": len(rows), "readers": report}))


if __name__ == "__main__":
    main()
