"""The golden databases, the options to open each, and its expected rows."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shale.format.sst.filter_policy import BloomPolicy, FixedPrefix
from shale.types import Row
from tests.golden_files import FIXTURES

P4 = FixedPrefix("p4", 4)
DATABASES = [
    (path.parent.name, name)
    for path in sorted(FIXTURES.glob("*/contents.json"))
    for name in json.loads(path.read_text()).get("dbs", {})
]


def concatenate(_key: bytes, existing: bytes | None, operands: Sequence[bytes]) -> bytes:
    return (existing or b"") + b"".join(operands)


def where_options(case: str, folder: Path) -> dict[str, Any]:
    options: dict[str, Any] = {"merge_operator": concatenate} if case == "merge_operands" else {}
    if case == "separate_wal_store":
        options["wal_store"] = f"file://{folder / 'walstore'}"
    if case == "prefix_filter":
        options["filter_policies"] = (BloomPolicy(12, P4), BloomPolicy(8, P4, whole_key=False), BloomPolicy(16))
    return options


def expected_rows(case: str, name: str) -> list[list[Any]]:
    contents = json.loads((FIXTURES / case / "contents.json").read_text())
    live: list[list[Any]] = contents["dbs"][name]["live"]
    return live


def as_json(row: Row) -> list[Any]:
    def short(data: bytes) -> Any:
        return data.hex() if len(data) <= 300 else {"len": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    return [short(row.key), short(row.value), row.seq, row.create_ts, row.expire_ts]
