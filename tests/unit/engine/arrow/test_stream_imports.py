"""A daemon that serves Arrow does not import pandas, which takes half a second of its event loop and 50 MB."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import anyio
import shale
from shale.engine.arrow.stream import ArrowWriter, read_table
from shale.store.memory import MemoryStore

async def main():
    async with shale.Db.open("db", store=MemoryStore()) as db:
        await db.put(b"a", b"1")
        writer, data = ArrowWriter(), b""
        if sys.argv[1] == "rows":
            rows = await db.scan().columns()
            data = b"".join(writer.pieces(rows))
        data += writer.ending({"shale": b"{}"})
    table, ending = read_table(data)
    print(table.num_rows, ending.decode(), "pandas" in sys.modules)

anyio.run(main)
"""


@pytest.mark.parametrize(("content", "count"), [("rows", 1), ("nothing", 0)])
def test_a_stream_of_arrow_needs_no_pandas(content: str, count: int) -> None:
    pytest.importorskip("pandas", reason="pyarrow cannot import it")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM, content]
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout
    assert out.split() == [str(count), "{}", "False"]
