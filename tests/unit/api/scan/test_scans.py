"""Scans: all formats return the same rows; a stopped scan resumes after its last row in its state, or fails."""

import io
from typing import Any

import msgpack
import pyarrow as pa
import pytest

from shale.api.scan.formats import JsonLines, Msgpack
from shale.api.scan.stream import scan_pieces
from shale.concurrency.loop_turns import LoopTurns
from tests.unit.api.harness import Port, b64, open_port

pytestmark = pytest.mark.anyio

KEYS = [b"k%03d" % number for number in range(40)]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def fill(port: Port) -> None:
    for number, key in enumerate(KEYS):
        await port.db.put(key, b"v%d" % number, expire_at=99_999_999_999_999 if number % 7 == 0 else None)


async def rows_of(port: Port, media_type: str, **fields: Any) -> list[tuple[Any, ...]]:
    answer = await port.post("/v1/scan", fields, Accept=media_type)
    assert (answer.status_code, answer.headers["content-type"]) == (200, media_type)
    if media_type.endswith("msgpack"):
        *rows, ending = msgpack.Unpacker(io.BytesIO(answer.content), use_list=False)
        assert ending["end"] is True
        return rows
    with pa.ipc.open_stream(answer.content) as stream:
        assert stream.schema.names == ["key", "value", "seq", "create_ts", "expire_ts"]
        rows, ending = [], None
        while True:
            try:
                batch, metadata = stream.read_next_batch_with_custom_metadata()
            except StopIteration:
                break
            ending = metadata
            columns = [batch.column(name) for name in ("key", "value", "seq")]
            times = [batch.column(name).cast(pa.int64()) for name in ("create_ts", "expire_ts")]
            rows += zip(*(column.to_pylist() for column in (*columns, *times)), strict=True)
        assert ending is not None
        assert b'"end":true' in ending["shale"]
        return rows


@pytest.mark.parametrize("fields", [{}, {"reverse": True}, {"limit": 7}, {"prefix": b64(b"nothing")}], ids=str)
async def test_all_formats_give_the_same_rows(fields: dict[str, Any]) -> None:
    async with open_port() as port:
        await fill(port)
        arguments = {name: value for name, value in fields.items() if name != "prefix"}
        prefix = b"nothing" if "prefix" in fields else None
        expected = [tuple(row) async for row in port.db.scan(prefix=prefix, **arguments)]
        for media_type in ("application/msgpack", "application/vnd.apache.arrow.stream"):
            assert await rows_of(port, media_type, **fields) == expected
        keys, ending, _ = await port.scan(**fields)
        assert keys == [row[0] for row in expected]
        assert ending["rows"] == len(expected)


@pytest.mark.parametrize(
    ("accept", "given"),
    [
        ("*/*", "application/x-ndjson"),
        ("application/msgpack;q=0.5, application/x-ndjson;q=0.4", "application/msgpack"),
        ("text/html, application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.stream"),
        ("application/*;q=0.1, application/x-ndjson;q=0", "application/msgpack"),
        ("text/html", None),
        ("application/msgpack;q=nan", None),
    ],
)
async def test_the_format_is_what_the_client_prefers(accept: str, given: str | None) -> None:
    async with open_port() as port:
        answer = await port.post("/v1/scan", {}, Accept=accept)
        assert answer.status_code == (200 if given else 406)
        assert answer.headers["content-type"] == (given or "application/problem+json")


async def test_a_long_list_of_formats_is_refused() -> None:
    """To parse it takes time in which no other request runs."""
    async with open_port() as port:
        answer = await port.post("/v1/scan", {}, Accept="*/*," * 1025)
        assert (answer.status_code, answer.headers["content-type"]) == (431, "application/problem+json")


async def test_a_long_query_is_refused() -> None:
    async with open_port() as port:
        answer = await port.post("/v1/scan?" + "&".join(f"a{number}=1" for number in range(100)), {})
        assert (answer.status_code, answer.json()["detail"]) == (400, "there are too many query parameters")


@pytest.mark.parametrize("reverse", [False, True])
async def test_pages_of_a_snapshot_show_one_state(reverse: bool) -> None:
    async with open_port() as port:
        await fill(port)
        snapshot = (await port.post("/v1/snapshots", {})).json()["id"]
        seen: list[bytes] = []
        token, query = None, f"?snapshot={snapshot}"
        while True:
            fields = {"limit": 7, "reverse": reverse} | ({"resume": token} if token else {})
            keys, ending, headers = await port.scan(query, **fields)
            seen += keys
            if token:
                assert headers["x-shale-same-state"] == "true"
                query = ""  # the token knows
            token = ending["resume"]
            if token is None:
                break
            await port.db.delete(KEYS[20])
            await port.db.put(b"k%03d+" % len(seen), b"new")
        assert seen == (KEYS[::-1] if reverse else KEYS)


@pytest.mark.parametrize("reverse", [False, True])
async def test_a_cut_scan_resumes_after_the_last_row_that_arrived(reverse: bool) -> None:
    async with open_port() as port:
        await fill(port)
        keys, _, headers = await port.scan(reverse=reverse)
        arrived = keys[:13]
        fields = {"reverse": reverse, "resume": headers["x-shale-resume"], "after": b64(arrived[-1])}
        rest, _, again = await port.scan(**fields, same_state=True)
        assert arrived + rest == keys
        assert again["x-shale-same-state"] == "true"

        await port.db.put(b"k999", b"newer")
        answer = await port.post("/v1/scan", {**fields, "same_state": True})
        assert answer.status_code == 410
        assert "the state has changed" in answer.json()["detail"]
        assert (await port.scan(**fields))[2]["x-shale-same-state"] == "false"


async def test_a_scan_does_not_go_on_when_its_snapshot_is_over() -> None:
    async with open_port() as port:
        await fill(port)
        snapshot = (await port.post("/v1/snapshots", {})).json()["id"]
        _, ending, _ = await port.scan(f"?snapshot={snapshot}", limit=3)
        await port.client.delete(f"/v1/snapshots/{snapshot}")
        answer = await port.post("/v1/scan", {"limit": 3, "resume": ending["resume"]})
        assert answer.status_code == 410


@pytest.mark.parametrize("change", [{"reverse": True}, {"prefix": b64(b"k")}, {"start": b64(b"a")}], ids=str)
async def test_a_token_is_of_one_scan(change: dict[str, Any]) -> None:
    async with open_port() as port:
        await fill(port)
        _, ending, _ = await port.scan(limit=3)
        answer = await port.post("/v1/scan", {"limit": 3, "resume": ending["resume"], **change})
        assert answer.status_code == 400
        damaged = ending["resume"][:-6] + "AAAA" + ending["resume"][-2:]
        assert (await port.post("/v1/scan", {"resume": damaged})).status_code == 400


async def test_reads_see_what_is_durable_if_they_ask_for_it() -> None:
    async with open_port(limits={}, flush_interval=None) as port:
        await port.db.put(b"a", b"1")
        durable = {"X-Shale-Durability": "durable"}
        assert (await port.client.get("/v1/kv/a")).status_code == 200
        assert (await port.client.get("/v1/kv/a", headers=durable)).status_code == 404
        assert (await port.post("/v1/get-many", {"keys": [b64(b"a")]}, **durable)).json() == {"values": [None]}
        assert (await port.post("/v1/scan", {}, **durable)).content.count(b"\n") == 1
        await port.db.flush()
        assert (await port.client.get("/v1/kv/a", headers=durable)).status_code == 200


PIECE_BYTES = 1 << 20


@pytest.mark.parametrize("encoder", [JsonLines, Msgpack])
async def test_what_a_stream_holds_does_not_grow_with_the_values(encoder: Any) -> None:
    value = b"v" * (300 << 10)
    async with open_port(l0_sst_size_bytes="2MiB") as port:
        for number in range(12):
            await port.db.put(b"k%02d" % number, value)
        encoded = scan_pieces(port.db.scan(), encoder(lambda: PIECE_BYTES, LoopTurns()), limit=None, token=lambda _: "")
        pieces = [len(piece) async for piece in encoded]
        assert sum(pieces) > 12 * len(value)
        assert max(pieces) <= 4 / 3 * (PIECE_BYTES + len(value))
