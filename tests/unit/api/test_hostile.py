"""Invalid and hostile requests: each is refused with a message and does not affect other clients."""

import base64
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import anyio
import msgpack
import pytest

import shale
from shale.api.idempotency import CommittedWrite, IdempotencyCache
from shale.api.messages import Request
from shale.api.scan.token import _check
from shale.api.settings import HttpSection
from shale.api.snapshot_leases import SnapshotLeases
from shale.engine.read import multi_get
from shale.engine.read.multi_get import lookup_many
from shale.env import Env
from shale.service.http.problems import Problem, busy
from tests.unit.api.harness import b64, open_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from shale.api.snapshot_leases import SnapshotHandle
    from shale.engine.read.read_point import Durability
    from shale.engine.read.super_version import SuperVersion

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_small_request_for_many_large_values_is_refused() -> None:
    limits = {"max_body_bytes": "1MiB", "max_inflight_bytes": "2MiB"}
    async with open_port(limits=limits) as port:
        await port.db.put(b"large", bytes(900 << 10))
        await port.db.put(b"small", b"1")
        answer = await port.post("/v1/get-many", {"keys": [b64(b"large")] * 3})
        assert (answer.status_code, answer.json()["kind"]) == (413, "invalid")
        assert "fewer keys" in answer.json()["detail"]
        assert (await port.post("/v1/get-many", {"keys": [b64(b"large")] * 2})).status_code == 200
        many = await port.post("/v1/get-many", {"keys": [b64(key) for key in (b"small", b"no", b"small", b"large")]})
        assert many.json()["values"][:3] == [b64(b"1"), None, b64(b"1")]


@pytest.mark.parametrize("path", ["100%", "%", "a%4", "a%zz", "%%41"])
async def test_a_percent_sign_that_is_not_encoded_is_no_key(path: str) -> None:
    async with open_port() as port:
        scope: dict[str, Any] = {
            "type": "http",
            "method": "PUT",
            "raw_path": f"/v1/kv/{path}".encode(),
            "headers": [],
            "query_string": b"",
        }
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"v", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await port.app(scope, receive, send)
        assert sent[0]["status"] == 400
        assert b"%25" in sent[1]["body"]
        assert port.db.status.last_seq == 0


@pytest.mark.parametrize(
    "fields",
    [
        7,
        [],
        [2],
        [2, b"x", 1, None],
        [2, b"x", "1", None, b"k"],
        [2, b"x", 1, None, 5],
        [2, b"x", 1, 9, b"k"],
        {},
        None,
    ],
)
async def test_a_token_with_a_good_checksum_may_hold_anything(fields: object) -> None:
    plain = cast("bytes", msgpack.packb(fields))
    async with open_port() as port:
        answer = await port.post("/v1/scan", {"resume": base64.urlsafe_b64encode(plain + _check(plain)).decode()})
        assert (answer.status_code, answer.json()["detail"]) == (400, "resume: not a scan token")


async def test_snapshots_that_are_asked_for_at_once_are_counted_too() -> None:
    go = anyio.Event()

    class Still:
        seq = 1

        async def close(self) -> None:
            """Do nothing: no resource is open."""

    async def take(_: "Durability") -> "SnapshotHandle":
        await go.wait()
        return cast("Any", Still())

    snapshots = SnapshotLeases(take, Env.system(), HttpSection(max_snapshots=3))
    refused: list[int] = []

    async def ask() -> None:
        try:
            await snapshots.open("memory", None)
        except Problem as problem:
            refused.append(problem.status)

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        go.set()
    assert (len(snapshots), refused) == (3, [429] * 7)


async def test_repetitions_of_a_stalled_write_time_out_together() -> None:
    """Otherwise each waiting repetition would try again after the one before has given up."""
    waits: list[str] = []

    @contextmanager
    def in_time(what: str) -> "Iterator[None]":
        waits.append(what)
        with anyio.move_on_after(0.05) as scope:
            yield
        if scope.cancelled_caught:
            raise busy(what)

    repeats = IdempotencyCache(8, in_time)
    call = Request({"type": "http", "method": "PUT", "raw_path": b"/v1/kv/k", "headers": []}, cast("Any", None))
    tries = 0
    problems: list[str] = []

    async def commit() -> CommittedWrite:
        nonlocal tries
        tries += 1
        with in_time("accept the write"):
            await anyio.sleep_forever()
        raise AssertionError

    async def write() -> None:
        try:
            await repeats.once("name", call, b"v", commit)
        except Problem as problem:
            problems.append(problem.detail)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for _ in range(12):
                tasks.start_soon(write)
    assert len(problems) == 12
    assert tries <= 2


async def test_writes_that_arrive_together_while_memory_fills_up_are_answered() -> None:
    """Each finds room when it arrives and gives way to the others, which take the room."""
    full: dict[str, Any] = {
        "l0_sst_size_bytes": 1 << 20,
        "max_unflushed_bytes": 3 << 20,
        "l0_max_ssts": 1,
        "l0_max_ssts_per_key": 1,
        "compactor": False,
    }
    statuses: list[int] = []
    async with open_port(limits={"request_timeout": 0.2}, **full) as port:

        async def put(number: int) -> None:
            answer = await port.client.put(f"/v1/kv/{number}", content=bytes(256 << 10))
            statuses.append(answer.status_code)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for number in range(40):
                    tasks.start_soon(put, number)
    assert set(statuses) == {204, 503}


async def test_a_compressed_body_is_not_stored_as_it_is() -> None:
    async with open_port() as port:
        answer = await port.client.put("/v1/kv/a", content=b"x", headers={"Content-Encoding": "gzip"})
        assert (answer.status_code, port.db.status.last_seq) == (415, 0)
        plain = {"Content-Encoding": "identity"}
        assert (await port.client.put("/v1/kv/a", content=b"x", headers=plain)).status_code == 204


async def test_head_tells_of_a_row_what_get_tells() -> None:
    async with open_port() as port:
        await port.db.put(b"a", b"value")
        head, get = await port.client.head("/v1/kv/a"), await port.client.get("/v1/kv/a")
        assert (head.status_code, head.headers["x-shale-seq"]) == (200, get.headers["x-shale-seq"])
        assert head.headers["content-length"] == "5"
        assert (await port.client.head("/v1/kv/b")).status_code == 404


@pytest.mark.parametrize("path", ["/v1/kv/a", "/v1/batch", "/v1/writer", "/v1/snapshots/x", "/openapi.json"])
async def test_a_method_that_a_path_has_not_is_told_which_ones_it_has(path: str) -> None:
    methods = ("GET", "HEAD", "OPTIONS", "PUT", "POST", "PATCH", "DELETE", "TRACE")
    async with open_port() as port:
        answers = {method: await port.client.request(method, path) for method in methods}
        allowed = sorted(method for method, answer in answers.items() if answer.status_code != 405)
        for method in set(methods) - set(allowed):
            assert answers[method].headers["allow"] == ", ".join(allowed)
        assert ("GET" in allowed) is ("HEAD" in allowed)


async def test_many_large_values_are_not_read_to_the_end() -> None:
    async with open_port(limits={"max_body_bytes": "1MiB", "max_inflight_bytes": "2MiB"}) as port:
        keys = [b"%04d" % number for number in range(400)]
        batch = shale.WriteBatch()
        for key in keys:
            batch.put(key, bytes(32 << 10))
        await port.db.write(batch)
        read: list[int] = []

        def counted(view: "SuperVersion", keys: "Sequence[bytes]", *at: Any, **options: Any) -> Any:
            read.append(len(keys))
            return lookup_many(view, keys, *at, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(multi_get, "lookup_many", counted)
            answer = await port.post("/v1/get-many", {"keys": [b64(key) for key in keys]})
            assert (answer.status_code, read) == (
                413,
                [128, 128],
            )  # at first without memory of its own, as for small values
            assert "fewer keys" in answer.json()["detail"]
        few = await port.post("/v1/get-many", {"keys": [b64(key) for key in keys[:50]]})
        assert (few.status_code, len(few.json()["values"])) == (200, 50)
        with pytest.raises(shale.errors.ResponseTooLarge):
            await port.db.get_many(keys, max_bytes=399 << 15)
        assert await port.db.get_many(keys, max_bytes=400 << 15) == [bytes(32 << 10)] * 400


async def test_a_whole_number_may_have_a_fraction_of_zero() -> None:
    async with open_port() as port:
        assert (await port.post("/v1/snapshots", {"lifetime_ms": 5000.0})).status_code == 201
        assert (await port.post("/v1/snapshots", {"lifetime_ms": 5000.5})).status_code == 400
        row = ["put", b64(b"k"), b64(b"v"), 1000.0]
        assert (await port.post("/v1/batch", {"ops": [row]})).status_code == 200
