"""Ten times as many clients as a writer has capacity for: quick refusals, bounded memory, nothing lost.

The writer is killed while it is overloaded; what it had acknowledged as durable is there afterwards.
"""

import re
import time
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

import shale
from tests.integration.writer.writer_process import Client, writer

ROOM = 32
CLIENTS = 10 * ROOM
LOAD_S = 6.0
VALUE = b"v" * 65_536
REQUEST_TIMEOUT_S = 2.0
SLOWEST_S = 180.0
"""Far above the time limit of the server: this machine has other things to do."""
PAUSE_S = 0.1
"""After a refusal: a tenth of what the server asks for."""
GROWTH_MAX_BYTES = 64 << 20
LIMITS = {
    "http.max_concurrent_requests": ROOM,
    "http.max_body_bytes": "1MiB",
    "http.max_inflight_bytes": "2MiB",
    "http.request_timeout": f"{REQUEST_TIMEOUT_S}s",
    "l0_sst_size_bytes": "1MiB",
    "max_unflushed_bytes": "3MiB",
}
STALLED = {**LIMITS, "l0_max_ssts": 1, "l0_max_ssts_per_key": 1}
"""Without a compactor nothing gets beyond the first L0, so that writes run into the limit of what is not flushed."""


@dataclass
class Seen:
    """The responses to all clients; ``slowest_s`` is the longest time of one response."""

    acknowledged: set[bytes] = field(default_factory=set)
    statuses: dict[int, int] = field(default_factory=dict)
    slowest_s: float = 0.0
    without_advice: int = 0
    cut: int = 0


async def client(number: int, port: int, seen: Seen, end_s: float) -> None:
    """Put one row after the other until the time is over, on one connection if the server keeps it open."""
    turn = 0
    while time.monotonic() < end_s:
        try:
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                while time.monotonic() < end_s:
                    key = b"%03d-%05d" % (number, turn)
                    turn += 1
                    started_s = time.monotonic()
                    await stream.send(
                        b"PUT /v1/kv/%b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"
                        % (key, len(VALUE), VALUE)
                    )
                    answer = b""
                    while not is_whole(answer):
                        answer += await stream.receive()
                    seen.slowest_s = max(seen.slowest_s, time.monotonic() - started_s)
                    if note(answer, key, seen) != 204:
                        await anyio.sleep(PAUSE_S)
        except (anyio.BrokenResourceError, anyio.EndOfStream, OSError):
            seen.cut += 1


def is_whole(answer: bytes) -> bool:
    head, blank, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    return bool(blank) and len(body) >= (int(length[1]) if length else 0)


def note(answer: bytes, key: bytes, seen: Seen) -> int:
    status = int(answer[9:12])
    seen.statuses[status] = seen.statuses.get(status, 0) + 1
    if status == 204:
        seen.acknowledged.add(key)
    elif b"retry-after:" not in answer.lower():
        seen.without_advice += 1
    return status


async def load(port: int, seen: Seen, admin: Client) -> None:
    end_s = time.monotonic() + LOAD_S
    with anyio.fail_after(LOAD_S + SLOWEST_S):
        async with anyio.create_task_group() as tasks:
            for number in range(CLIENTS):
                tasks.start_soon(client, number, port, seen, end_s)
            await anyio.sleep(LOAD_S / 2)
            status, _ = await anyio.to_thread.run_sync(lambda: admin.daemon.get("/livez", port=admin.admin_port))
            assert status == 200


def warm_up(one: Client) -> None:
    """Load the kernels, whose memory exceeds all budgets of this test."""
    rows = [["put", b"warm-%05d" % number, b"v"] for number in range(4000)]
    deadline_s = time.monotonic() + 120
    while one.post("/v1/batch", {"ops": rows}, packed=True)[0] != 200:
        assert time.monotonic() < deadline_s


def peak_bytes(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux for the memory of a process")
@pytest.mark.parametrize(
    ("limits", "refusal"), [pytest.param(LIMITS, 429, id="clients"), pytest.param(STALLED, 503, id="stalled")]
)
def test_overload(tmp_path: Path, limits: dict[str, object], refusal: int) -> None:
    options = [f"--set={name}={value}" for name, value in limits.items()]
    seen = Seen()
    with writer(tmp_path, *options) as one:
        warm_up(one)
        before = peak_bytes(one.daemon.process.pid)
        anyio.run(load, one.port, seen, one)
        grown = peak_bytes(one.daemon.process.pid) - before
        one.daemon.process.kill()
        one.daemon.process.wait()
        errors = [line for line in one.daemon.lines() if line["level"] in ("error", "critical")]

    assert errors == []
    assert set(seen.statuses) <= {204, 429, 503}, seen.statuses
    assert seen.statuses.get(refusal, 0) > 0, seen.statuses
    assert seen.without_advice == 0
    assert seen.cut == 0
    assert seen.slowest_s < SLOWEST_S
    assert grown < GROWTH_MAX_BYTES, grown
    assert len(seen.acknowledged) > 0
    assert anyio.run(missing, tmp_path, seen.acknowledged) == []


async def missing(directory: Path, keys: set[bytes]) -> list[bytes]:
    async with shale.DbReader.open(f"file://{directory}/store/orders", follow_latest=True) as db:
        found = await db.get_many(sorted(keys))
        return [key for key, value in zip(sorted(keys), found, strict=True) if value != VALUE]
