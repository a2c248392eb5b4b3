"""An S3 server that allows what a policy allows: in front of another one, which asks for no rights.

A policy is in the language of IAM.  The access key of a request is the name of its policy.
"""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from tests.integration.store.servers import http_server

_KEY = re.compile(r"Credential=([^/,]+)/")
_DELETED = re.compile(r"<Key>([^<]+)</Key>")
_PASSED_ON = frozenset({"content-type", "content-length", "etag", "last-modified", "content-range", "date"})
DENIED = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>"
NOT_DELETED = (
    b"<?xml version='1.0'?><DeleteResult><Error><Key>%s</Key><Code>AccessDenied</Code>"
    b"<Message>Access Denied.</Message></Error></DeleteResult>"
)


class Access(NamedTuple):
    """What a request needs: an action on an object or a bucket, and for a listing its prefix."""

    action: str
    resource: str
    prefix: str | None = None


def accesses(method: str, target: str, body: bytes) -> list[Access]:
    """Return what a request needs."""
    place = urlsplit(target)
    path, query = unquote(place.path).strip("/"), parse_qs(place.query, keep_blank_values=True)
    if method == "POST" and "delete" in query:
        return [Access("s3:DeleteObject", f"{path}/{key}") for key in _DELETED.findall(body.decode())]
    if "/" not in path:
        return [Access("s3:ListBucket", path, query.get("prefix", [""])[0])]
    writes = "s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject"
    action = {"GET": "s3:GetObject", "HEAD": "s3:GetObject", "DELETE": writes}.get(method, "s3:PutObject")
    return [Access(action, path)]


def is_allowed(policy: Mapping[str, Any], access: Access) -> bool:
    """Return whether a statement of the policy allows this."""
    return any(_allows(statement, access) for statement in policy["Statement"])


def _allows(statement: Mapping[str, Any], access: Access) -> bool:
    condition = statement.get("Condition", {"StringLike": {"s3:prefix": "*"}})["StringLike"]["s3:prefix"]
    return (
        statement["Effect"] == "Allow"
        and access.action in _listed(statement["Action"])
        and any(fnmatchcase(f"arn:aws:s3:::{access.resource}", each) for each in _listed(statement["Resource"]))
        and (access.prefix is None or fnmatchcase(access.prefix, condition))
    )


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


@contextlib.contextmanager
def policy_server(endpoint: str, policies: Mapping[str, Mapping[str, Any]], denied: list[str]) -> Iterator[str]:
    """Serve the requests that the policies allow from the server at ``endpoint``; collects all others."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = _KEY.search(self.headers.get("Authorization", ""))
            policy = policies[found[1]] if found else {"Statement": []}
            for access in accesses(self.command, self.path, body):
                if not is_allowed(policy, access):
                    denied.append(json.dumps([found[1] if found else "", *access]))
                    is_bulk = self.command == "POST" and access.action == "s3:DeleteObject"
                    answer = NOT_DELETED % access.resource.partition("/")[2].encode() if is_bulk else DENIED
                    self._answer(200 if is_bulk else 403, {"Content-Type": "application/xml"}, answer)
                    return
            with contextlib.closing(HTTPConnection(urlsplit(endpoint).netloc)) as server:
                server.request(self.command, self.path, body, dict(self.headers))
                answer = server.getresponse()
                self._answer(answer.status, answer.headers, answer.read())

        def _answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                is_about_body = name.lower() == "content-length" and self.command != "HEAD"
                if name.lower() in _PASSED_ON and not is_about_body:
                    self.send_header(name, value)
            if self.command != "HEAD" and status not in (204, 304):
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - names of the standard library

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the standard library
            pass

    with http_server(Handler) as url:
        yield url
