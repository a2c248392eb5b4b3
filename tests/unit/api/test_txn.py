"""Conditional writes are atomic, and the response names the failed expectation."""

import anyio
import msgpack
import pytest

from tests.loop_rounds import counted_rounds
from tests.unit.api.harness import b64, open_port

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_compare_that_holds_lets_the_writes_happen_as_one_commit() -> None:
    async with open_port() as port:
        await port.db.put(b"gone", b"x")
        seq = (await port.db.put(b"a", b"1")).seq
        compare = [["value", b64(b"a"), b64(b"1")], ["seq", b64(b"a"), seq], ["absent", b64(b"b")]]
        ops = [["put", b64(b"a"), b64(b"2")], ["put", b64(b"b"), b64(b"3")], ["delete", b64(b"gone")]]
        answer = await port.post("/v1/txn", {"compare": [*compare, ["present", b64(b"gone")]], "ops": ops})
        assert answer.status_code == 200
        assert answer.json()["rows"] == 3
        rows = [await port.db.get_row(key) for key in (b"a", b"b", b"gone")]
        assert [row and (row.value, row.seq) for row in rows] == [(b"2", seq + 1), (b"3", seq + 1), None]
        assert answer.headers["x-shale-seq"] == str(seq + 1) == str(answer.json()["seq"])


@pytest.mark.parametrize(
    ("compare", "failed"),
    [
        ([["absent", b"a"]], [0]),
        ([["present", b"no"]], [0]),
        ([["value", b"a", b"2"]], [0]),
        ([["value", b"no", b""]], [0]),
        ([["seq", b"a", 7]], [0]),
        ([["present", b"a"], ["absent", b"a"], ["value", b"a", b"1"], ["seq", b"no", 0]], [1, 3]),
    ],
)
async def test_a_compare_that_fails_is_named_and_nothing_is_written(compare: list[object], failed: list[int]) -> None:
    async with open_port() as port:
        await port.db.put(b"a", b"1")
        body = msgpack.packb({"compare": compare, "ops": [["put", b"b", b"1"]]})
        headers = {"Content-Type": "application/msgpack"}
        answer = await port.client.post("/v1/txn", content=body, headers=headers)
        assert answer.status_code == 412
        assert answer.json()["failed"] == failed
        assert answer.json()["kind"] == "transaction"
        assert await port.db.get(b"b") is None


async def test_compares_alone_are_an_answer() -> None:
    async with open_port() as port:
        seq = (await port.db.put(b"a", b"1")).seq
        answer = await port.post("/v1/txn", {"compare": [["present", b64(b"a")]]})
        assert (answer.status_code, answer.json()) == (200, {"seq": seq, "rows": 0})


async def test_a_counter_that_many_increment_at_once_loses_nothing() -> None:

    async with open_port() as port:
        await port.db.put(b"n", b"0")

        async def increment() -> None:
            while True:
                row = await port.client.get("/v1/kv/n")
                compare = [["seq", b64(b"n"), int(row.headers["x-shale-seq"])]]
                ops = [["put", b64(b"n"), b64(b"%d" % (int(row.content) + 1))]]
                answer = await port.post("/v1/txn", {"compare": compare, "ops": ops})
                if answer.status_code == 200:
                    return
                assert answer.status_code == 412

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(increment)
        assert await port.db.get(b"n") == b"20"


async def test_a_named_transaction_is_committed_once() -> None:
    async with open_port() as port:
        fields = {"compare": [["absent", b64(b"a")]], "ops": [["put", b64(b"a"), b64(b"1")]]}
        first = await port.post("/v1/txn", fields, Idempotency_Key="t1")
        again = await port.post("/v1/txn", fields, Idempotency_Key="t1")
        assert first.json() == again.json()
        assert (await port.post("/v1/txn", fields)).status_code == 412
        assert port.db.status.last_seq == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "empty"),
        ({"compare": [["equals", "YQ==", "YQ=="]]}, "compare[0]"),
        ({"compare": [["absent", ""]]}, "compare[0] key"),
        ({"compare": [["seq", "YQ==", -1]]}, "compare[0] seq"),
        ({"compare": [["absent", "YQ=="]], "ops": [["put", "YQ=="]]}, "ops[0]"),
        ({"compares": []}, "compares: no such field"),
    ],
)
async def test_a_bad_transaction_is_refused(fields: dict[str, object], words: str) -> None:
    async with open_port() as port:
        answer = await port.post("/v1/txn", fields)
        assert answer.status_code == 400
        assert words in answer.json()["detail"]


async def test_merges_need_an_operator_and_are_folded_with_one() -> None:
    async with open_port() as port:
        assert (await port.client.patch("/v1/kv/n", content=b"x")).status_code == 400
    async with open_port(merge_operator="concatenate") as port:
        assert (await port.client.patch("/v1/kv/n", content=b"a")).status_code == 204
        ops = [["merge", b64(b"n"), b64(b"b")], ["merge", b64(b"n"), b64(b"c")]]
        assert (await port.post("/v1/batch", {"ops": ops})).status_code == 200
        assert (await port.post("/v1/txn", {"ops": [["merge", b64(b"n"), b64(b"d")]]})).status_code == 200
        assert (await port.client.get("/v1/kv/n")).content == b"abcd"


@pytest.mark.parametrize(
    ("headers", "lives_ms"),
    [
        ({}, 1000),
        ({"X-Shale-TTL-Ms": "60000"}, 60_000),
        ({"X-Shale-TTL-Ms": "never"}, None),
        ({"X-Shale-Expire-At": "99999999999999"}, 99_999_999_999_999),
    ],
)
async def test_every_form_of_lifetime(headers: dict[str, str], lives_ms: int | None) -> None:
    async with open_port(default_ttl_ms=1000) as port:
        await port.client.put("/v1/kv/a", content=b"1", headers=headers)
        row = await port.db.get_row(b"a")
        assert row is not None
        assert row.create_ts is not None
        if lives_ms is None:
            assert row.expire_ts is None
        else:
            assert row.expire_ts == (lives_ms if lives_ms > 60_000 else row.create_ts + lives_ms)


async def test_a_put_that_is_sent_again_under_its_name_is_one_commit() -> None:
    async with open_port() as port:
        headers = {"Idempotency-Key": "p1"}
        seqs = {
            (await port.client.put("/v1/kv/a", content=b"1", headers=headers)).headers["x-shale-seq"] for _ in range(3)
        }
        assert seqs == {"1"}
        assert (await port.client.put("/v1/kv/a", content=b"2", headers=headers)).status_code == 422
        assert (await port.client.put("/v1/kv/b", content=b"1", headers=headers)).status_code == 422
        assert (await port.client.delete("/v1/kv/a", headers=headers)).status_code == 422
        longer = {**headers, "X-Shale-TTL-Ms": "5"}
        assert (await port.client.put("/v1/kv/a", content=b"1", headers=longer)).status_code == 422
        assert port.db.status.last_seq == 1


async def test_others_run_between_many_comparisons() -> None:
    async with open_port() as port:
        await port.db.put(b"a", b"1")
        body = msgpack.packb({"compare": [["present", b"a"]] * 10_240})
        headers = {"Content-Type": "application/msgpack"}
        async with counted_rounds() as rounds:
            answer = await port.client.post("/v1/txn", content=body, headers=headers)
        assert answer.status_code == 200
        assert rounds.count >= 20
