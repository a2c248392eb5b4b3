"""Uses the client that openapi-python-client generates; prints what it sees as JSON.

It runs in an environment that has the generated package, and neither Shale nor pytest.
"""

import io
import json
import sys
from base64 import b64decode, b64encode
from typing import Any

from shale_client import AuthenticatedClient
from shale_client.api.rows import commit_txn, delete_row, get_row, put_row, scan_page, write_batch
from shale_client.models import AbsentCheck, BatchRequest, DeleteOp, PutOp, ScanRequest, TxnRequest, ValueCheck
from shale_client.types import File


def b64(data: bytes) -> str:
    """Encode bytes for a field of a body."""
    return b64encode(data).decode()


def put(key: bytes, value: bytes, **lifetime: Any) -> PutOp:
    """Return an operation of a batch."""
    return PutOp(op="put", key=b64(key), value=b64(value), **lifetime)


def main(url: str, token: str) -> dict[str, Any]:
    """Write, read, scan and delete rows."""
    seen: dict[str, Any] = {}
    with AuthenticatedClient(base_url=url, token=token) as client:
        written = put_row.sync_detailed("a/ü 1", client=client, body=File(payload=io.BytesIO(b"one")))
        seen["put"] = written.status_code.value
        seen["get"] = get_row.sync("a/ü 1", client=client).payload.read().decode()
        ops = [put(b"b", b"2", ttl_ms=3_600_000), put(b"c", b"3"), DeleteOp(op="delete", key=b64(b"none"))]
        seen["batch"] = write_batch.sync(client=client, body=BatchRequest(ops=ops)).rows
        compare = [
            ValueCheck(check="value", key=b64(b"b"), value=b64(b"2")),
            AbsentCheck(check="absent", key=b64(b"q")),
        ]
        seen["txn"] = commit_txn.sync(client=client, body=TxnRequest(compare=compare, ops=[put(b"b", b"22")])).rows
        failed = commit_txn.sync(client=client, body=TxnRequest(compare=[AbsentCheck(check="absent", key=b64(b"b"))]))
        seen["failed"] = [failed.status, failed.failed]
        seen["scan"] = []
        request = ScanRequest(limit=2)
        while True:
            page = scan_page.sync(client=client, body=request)
            seen["scan"] += [[b64decode(row.key).decode(), b64decode(row.value).decode()] for row in page.rows]
            if page.resume is None:
                break
            request = ScanRequest(limit=2, resume=page.resume)
        seen["delete"] = delete_row.sync_detailed("b", client=client).status_code.value
        seen["absent"] = get_row.sync_detailed("b", client=client).status_code.value
    return seen


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
