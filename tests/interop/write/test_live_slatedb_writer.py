"""A running SlateDB writer, which gives no sign of life, is not fenced by accident."""

import asyncio
from pathlib import Path

import pytest

import shale
from tests.interop.slatedb_databases import Shape, flush, open_folder, opened, put_all


@pytest.mark.parametrize("flushed", [False, True], ids=["rows in the WAL", "rows in L0"])
def test_a_slatedb_writer_keeps_its_database(tmp_path: Path, flushed: bool) -> None:
    url = f"file://{tmp_path}/db"

    async def main() -> None:
        async with opened(open_folder(tmp_path), "db", Shape(settings={"flush_interval": "10ms"})) as theirs:
            await put_all(theirs, [(b"a", b"1")])
            if flushed:
                await flush(theirs)
            with pytest.raises(shale.LiveWriter, match=r"epoch 1 wrote .* ago and did not close"):
                await shale.Db.open(url, take_over=False)
            await put_all(theirs, [(b"b", b"2")])
        async with shale.Db.open(url, take_over=False) as ours:
            assert await ours.get_many([b"a", b"b"]) == [b"1", b"2"]

    asyncio.run(main())
