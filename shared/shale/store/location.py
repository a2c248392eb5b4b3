"""The location of a database: a store, and a path inside it (docs/how-to/object-stores.md).

``s3://bucket/a/b`` is bucket ``bucket``, path ``a/b``.  ``file:///data/orders`` is the directory store ``/data``, path
``orders``: its siblings are reachable, so clones resolve.  The path is written into clones and compared as a string
(docs/reference/protocol.md 0.1), so it is normalised here and nowhere else.
"""

import re
from urllib.parse import quote, unquote, urlsplit

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError

BUCKET_SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "azure": "az"}
"""Accepted schemes of bucket stores, and their canonical forms."""

_FORBIDDEN_IN_PATH = re.compile(r"[\x00-\x1f\x7f-\xff\\{}^%`\]\[\"<>~#|*?]")
"""Characters that stores or SlateDB would escape: the same path must be the same string everywhere."""


@dataclass(frozen=True, slots=True)
class Location:
    """``store_url`` names a bucket or directory, ``path`` a database in it (``""``: only the store was named)."""

    store_url: str
    path: str

    @property
    def url(self) -> str:
        """The location as one URL."""
        separator = "" if self.store_url.endswith("/") else "/"
        return f"{self.store_url}{separator}{self.path}" if self.path else self.store_url


def parse_location(url: str | None = None, store: str | None = None, path: str | None = None) -> Location:
    """Parse either the URL of a database, or the URL of a store and a path in it.

    Raises:
        InvalidRequestError: neither or both were given, or one of them is malformed.
    """
    if url is not None:
        if store is not None or path is not None:
            raise InvalidRequestError("give either a URL, or a store and a path, not both")
        return _split_database_url(url)
    if store is None:
        raise InvalidRequestError("no database was named: give a URL, or a store and a path")
    return Location(parse_store_url(store), normalize_path(path or ""))


def parse_store_url(url: str) -> str:
    """Return the canonical form of the URL of a bucket or directory."""
    scheme, authority, path = _parts(url)
    if scheme in ("file", "memory"):
        return _directory_url(path) if scheme == "file" else f"memory://{authority}/"
    if path.strip("/"):
        raise InvalidRequestError(f"{url}: the URL of a store names only a bucket; give the rest as the path")
    return f"{BUCKET_SCHEMES[scheme]}://{authority}"


def normalize_path(path: str) -> str:
    """Return the canonical form of a database path: segments joined by ``/``, none of them empty, ``.`` or ``..``."""
    if found := _FORBIDDEN_IN_PATH.search(path):
        raise InvalidRequestError(f"the database path {path!r} contains {found.group()!r}: not every store can name it")
    segments = [segment for segment in path.split("/") if segment]
    if any(segment in (".", "..") for segment in segments):
        raise InvalidRequestError(f"the database path {path!r} has a segment that is '.' or '..'")
    return "/".join(segments)


def directory_of(store_url: str) -> str:
    """Return the directory of a ``file://`` store URL."""
    return unquote(urlsplit(store_url).path) or "/"


def _split_database_url(url: str) -> Location:
    scheme, authority, path = _parts(url)
    if scheme == "file":
        parent, _, name = path.rstrip("/").rpartition("/")
        location = Location(_directory_url(parent), normalize_path(name))
    elif scheme == "memory":
        location = Location(f"memory://{authority}/", normalize_path(path))
    else:
        location = Location(f"{BUCKET_SCHEMES[scheme]}://{authority}", normalize_path(path))
    if not location.path:
        raise InvalidRequestError(f"{url}: names a store, not a database in it")
    return location


def _parts(url: str) -> tuple[str, str, str]:
    """Return scheme, authority and unescaped path of a supported URL."""
    if "://" not in url:
        raise InvalidRequestError(f"{url!r} is not a URL such as file:///data/orders or s3://bucket/orders")
    parts = urlsplit(url)
    scheme, path = parts.scheme.lower(), unquote(parts.path)
    if parts.query or parts.fragment:
        raise InvalidRequestError(f"{without_credentials(url)}: a location has no query and no fragment")
    if scheme == "file":
        if parts.netloc not in ("", "localhost") or not path.startswith("/"):
            raise InvalidRequestError(f"{without_credentials(url)}: write file:///absolute/path")
        if any(segment in (".", "..") for segment in path.split("/")):
            raise InvalidRequestError(f"{url}: the directory has a segment that is '.' or '..'")
        return scheme, "", path
    if scheme != "memory" and scheme not in BUCKET_SCHEMES:
        raise InvalidRequestError(f"{without_credentials(url)}: unknown scheme; use file, memory, s3, gs or az")
    if "@" in parts.netloc:
        raise InvalidRequestError(f"{without_credentials(url)}: credentials must not be in a URL")
    if scheme in BUCKET_SCHEMES and not parts.netloc:
        raise InvalidRequestError(f"{url}: the bucket is missing")
    return scheme, parts.netloc, path


def _directory_url(path: str) -> str:
    return "file://" + quote("/" + "/".join(segment for segment in path.split("/") if segment))


def without_credentials(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
