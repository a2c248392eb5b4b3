"""A batch with an idempotency key is committed once, however often it is sent."""

from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, cast

import anyio
import httpx
import pytest

import shale
from shale.api.build import build_writer_api
from shale.api.idempotency import CommittedWrite, IdempotencyCache
from shale.api.messages import Request
from shale.api.settings import WritesHttpSection
from shale.env import Env
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics

Post = Callable[..., Awaitable[httpx.Response]]
Scenario = Callable[[shale.Db, Post], Awaitable[None]]


def run(scenario: Scenario, **limits: int) -> None:
    async def main() -> None:
        env, metrics, http = Env.system(), Metrics(), WritesHttpSection(**cast("Any", limits))
        async with shale.Db.open("db", store=MemoryStore(), flush_interval=0) as db:
            api = build_writer_api(db, http, metrics, env, max_key_bytes=100)
            transport = httpx.ASGITransport(app=cast("Any", api))
            async with httpx.AsyncClient(transport=transport, base_url="http://writer") as client:

                async def post(key: bytes, name: bytes | None = None) -> httpx.Response:
                    headers = {} if name is None else {b"Idempotency-Key": name}
                    ops = [["put", b64encode(key).decode(), ""]]
                    return await client.post("/v1/batch", json={"ops": ops}, headers=headers)

                await scenario(db, post)

    anyio.run(main)


def test_a_named_batch_is_committed_once_and_an_unnamed_one_each_time() -> None:
    async def scenario(db: shale.Db, post: Post) -> None:
        answers = [(await post(b"k", b"n1")).json() for _ in range(3)]
        assert answers[0] == answers[1] == answers[2]
        assert db.status.last_seq == 1
        assert (await post(b"k")).json()["seq"] == 2
        assert (await post(b"k")).json()["seq"] == 3
        assert (await post(b"k", b"n2")).json()["seq"] == 4

    run(scenario)


def test_the_same_batch_twice_at_once_is_one_commit() -> None:
    async def scenario(db: shale.Db, post: Post) -> None:
        seqs: list[int] = []

        async def send() -> None:
            seqs.append((await post(b"k", b"n1")).json()["seq"])

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(send)
        assert seqs == [1] * 8

    run(scenario)


def test_another_batch_under_the_name_is_refused() -> None:
    async def scenario(db: shale.Db, post: Post) -> None:
        await post(b"k", b"n1")
        answer = await post(b"other", b"n1")
        assert answer.status_code == 422
        assert "'n1' belongs to another write" in answer.json()["detail"]
        assert await db.get(b"other") is None

    run(scenario)


def test_a_batch_that_was_refused_may_be_mended_under_its_name() -> None:
    async def scenario(db: shale.Db, post: Post) -> None:
        assert (await post(b"x" * 101, b"n1")).status_code == 400
        assert (await post(b"x", b"n1")).json()["seq"] == 1

    run(scenario)


def test_old_names_are_forgotten() -> None:
    async def scenario(db: shale.Db, post: Post) -> None:
        for name in (b"n1", b"n2", b"n3"):
            await post(b"k", name)
        assert (await post(b"k", b"n2")).json()["seq"] == 2
        assert (await post(b"k", b"n1")).json()["seq"] == 4

    run(scenario, max_idempotency_keys=2)


def test_a_write_that_is_under_way_does_not_keep_younger_names() -> None:
    async def main() -> None:
        cache = IdempotencyCache(2, lambda _: nullcontext())
        call = Request({"method": "PUT", "raw_path": b"/v1/kv/k", "headers": []}, cast("Any", None))
        begun, goes_on, commits = anyio.Event(), anyio.Event(), list[str]()

        async def write(name: str) -> None:
            async def commit() -> CommittedWrite:
                commits.append(name)
                if len(commits) == 1:
                    begun.set()
                    await goes_on.wait()
                return CommittedWrite(None, 1, len(commits))

            await cache.once(name, call, b"", commit)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write, "slow")
            await begun.wait()
            for name in ("n1", "n2", "n3", "n3", "n1"):
                await write(name)
            assert commits == ["slow", "n1", "n2", "n3", "n1"], "the oldest finished name was forgotten"
            goes_on.set()
        await write("slow")
        assert commits.count("slow") == 1, "it kept its name"

    anyio.run(main)


@pytest.mark.parametrize("name", [b"", b"x" * 129, b"\xfc", b"a\tb"])
def test_a_name_is_short_and_printable(name: bytes) -> None:
    async def scenario(db: shale.Db, post: Post) -> None:
        answer = await post(b"k", name)
        assert answer.status_code == 400
        assert "Idempotency-Key" in answer.json()["detail"]

    run(scenario)
