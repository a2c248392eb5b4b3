"""``shale kv import`` and ``export``: rows per second of CPU time of the whole process, with its start.

CPU time does not depend on the load of the machine.  An import waits for the WAL while it reads on.
"""

import csv
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.bench.cli.commands import cpu_seconds_of
from tests.bench.line import BenchLine

ROWS = 200_000
ROUNDS = 3
ALL_COLUMNS = ("--key", "id", "--value-format", "json")


def bulk_lines() -> Iterator[BenchLine]:
    """Import and export rows of two columns and of five, in each format."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        _write_files(place)
        for suffix in ("ndjson", "csv", "parquet"):
            for what, file, options in (
                ("key, value", f"plain.{suffix}", ()),
                ("5 columns as JSON", f"users.{suffix}", ALL_COLUMNS),
            ):
                into, out_of = [], []
                for number in range(ROUNDS):
                    url = f"file://{folder}/{file}-{number}"
                    into.append(_command("import", str(place / file), *options, "-u", url))
                    out_of.append(_command("export", f"{folder}/{number}-{file}", *options, "-u", url))
                yield _line(f"import {suffix}, {what}", into)
                yield _line(f"export {suffix}, {what}", out_of)


def _line(name: str, seconds: list[float]) -> BenchLine:
    return BenchLine(name=name, ours=ROWS / min(seconds), unit="rows/s", target="told")


def _command(*words: str) -> float:
    return cpu_seconds_of("-m", "shale_cli", "kv", *words, "-q")


def _write_files(place: Path) -> None:
    users = [
        {"id": f"user-{number:09}", "name": f"name {number}", "age": number % 90, "score": number / 7, "note": "x" * 60}
        for number in range(ROWS)
    ]
    plain = [{"key": user["id"], "value": "v" * 100} for user in users]
    for name, rows in (("users", users), ("plain", plain)):
        with (place / f"{name}.ndjson").open("w") as stream:
            stream.writelines(json.dumps(row) + "\n" for row in rows)
        with (place / f"{name}.csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(rows[0])
            writer.writerows(row.values() for row in rows)
        pq.write_table(pa.Table.from_pylist(rows), place / f"{name}.parquet")
