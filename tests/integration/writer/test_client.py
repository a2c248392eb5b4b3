"""The blocking client against a real writer."""

from pathlib import Path

import pytest

import shale
from shale.client import Compare, CompareFailed, Ops, SyncClient
from shale.errors import AccessDenied, UnavailableError
from tests.integration.writer.writer_process import writer


def test_the_blocking_client_does_what_the_other_does(tmp_path: Path) -> None:
    with writer(tmp_path) as source, SyncClient(f"http://127.0.0.1:{source.port}") as client:
        written = client.put(b"a", b"1", ttl="1h")
        assert client.get(b"a") == b"1"
        row = client.get_row(b"a")
        assert row is not None
        assert row.seq == written.seq
        ops = Ops()
        for number in range(2000):
            ops.put(b"k%04d" % number, b"v", ttl=shale.NEVER)
        assert client.batch(ops, durable=False).rows == 2000
        assert client.get_many([b"k0000", b"no"]) == [b"v", None]
        with client.snapshot(lifetime="30s") as snapshot:
            client.delete(b"k0001")
            assert client.get(b"k0001", snapshot=snapshot) == b"v"
            assert len(list(client.scan(prefix=b"k", snapshot=snapshot))) == 2000
            snapshot.renew()
        keys = [row.key for row in client.scan(prefix=b"k", reverse=True)]
        assert keys == [b"k%04d" % number for number in reversed(range(2000)) if number != 1]
        assert next(iter(client.scan(prefix=b"k"))).key == b"k0000"  # leaving early leaks nothing
        assert client.scan_arrow(prefix=b"k").num_rows == 1999
        client.txn([Compare.present(b"a")], Ops().delete(b"a"))
        with pytest.raises(CompareFailed):
            client.txn([Compare.present(b"a")])
        port = source.port
        assert source.daemon.stop() == 0
    with SyncClient(f"http://127.0.0.1:{port}", attempts=2) as client, pytest.raises(UnavailableError):
        client.get(b"a")


def test_a_wrong_token_is_refused(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "writer__http__bearer_token").write_text("hunter2\n")
    with writer(tmp_path, env={"SHALE_SECRETS_DIR": str(secrets)}) as source:
        url = f"http://127.0.0.1:{source.port}"
        with SyncClient(url, token="hunter2") as client:
            client.put(b"a", b"1")
        with SyncClient(url, token="hunter3") as client, pytest.raises(AccessDenied):
            client.get(b"a")
