"""Bodies that a decoder would blow up: refused by a running writer, which needs little more memory than their bytes."""

import http.client
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.writer.hostile_bodies import JSON, KINDS, MSGPACK, SIZE, items, packed_items
from tests.integration.writer.writer_process import Client, problem, writer

ROUTES = ("/v1/batch", "/v1/txn", "/v1/get-many", "/v1/scan", "/v1/scan-page", "/v1/snapshots")
GROWTH_MAX_BYTES = 4 * SIZE
AT_ONCE = 4
INFLIGHT_BYTES = 128 << 20
"""The default of ``http.max_inflight_bytes``."""
SLACK_BYTES = 48 << 20
"""What receiving takes beside the bodies: buffers of connections, and a copy of a body while its buffer grows."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    # A process of its own: the peak of a fork is that of its parent, and cannot be reset.
    with writer(tmp_path_factory.mktemp("hostile"), is_fresh=True) as one:
        yield one


def peak_bytes(client: Client) -> int:
    """Return the highest memory of the process since the last call of ``reset_peak``."""
    status = Path(f"/proc/{client.daemon.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) << 10


def reset_peak(client: Client) -> int:
    """Start to note the peak again; return the present memory."""
    Path(f"/proc/{client.daemon.process.pid}/clear_refs").write_text("5")
    return peak_bytes(client)


def post(client: Client, path: str, body: bytes, media_type: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)
    try:
        connection.request("POST", path, body, {"Content-Type": media_type})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_body_takes_at_most_four_times_its_bytes(client: Client, kind: str) -> None:
    media_type, make = KINDS[kind]
    body = make(SIZE)
    route = ROUTES[list(KINDS).index(kind) % len(ROUTES)]
    before = reset_peak(client)
    assert post(client, route, body, media_type) in {400, 413}
    assert peak_bytes(client) - before < GROWTH_MAX_BYTES
    assert client.put(b"k", b"v")[0] == 204


@pytest.mark.slow
@pytest.mark.parametrize("route", ROUTES)
def test_every_route_counts_before_it_decodes(client: Client, route: str) -> None:
    before = reset_peak(client)
    for body, media_type in ((packed_items(b"\x80", SIZE), MSGPACK), (items(b"[]", SIZE), JSON)):
        assert post(client, route, body, media_type) == 413
    assert peak_bytes(client) - before < GROWTH_MAX_BYTES


def test_bodies_at_once_share_one_budget(client: Client) -> None:
    body = packed_items(b"\x93\xa3put\xc4\x01k\xc4\x01v", SIZE // 4)  # 700,000 rows
    before = reset_peak(client)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        statuses = list(pool.map(lambda _: post(client, "/v1/batch", body, MSGPACK), range(2 * AT_ONCE)))
    assert set(statuses) <= {413, 503}
    assert peak_bytes(client) - before < INFLIGHT_BYTES + SLACK_BYTES


def test_what_a_body_is_decoded_to_is_charged(tmp_path: Path) -> None:
    limits = {"http.max_body_bytes": "1MiB", "http.max_inflight_bytes": "2MiB", "flush_interval": "5ms"}
    with writer(tmp_path, *(f"--set={name}={value}" for name, value in limits.items())) as one:
        ops = [["put", b"%05d" % number, b""] for number in range(8000)]
        assert one.post("/v1/batch", {"ops": ops[:4000]}, packed=True)[0] == 200
        refused = one.post("/v1/batch", {"ops": ops}, packed=True)
        assert "would take" in problem(refused, 413)["detail"]
        assert one.post("/v1/batch", {"ops": ops[4000:]}, packed=True)[0] == 200
