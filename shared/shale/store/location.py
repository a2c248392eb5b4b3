"""The location of a database: a store, and a path inside it (docs/how-to/object-stores.md).

``s3://bucket/a/b`` is bucket ``bucket``, path ``a/b``.  ``file:///data/orders`` is the directory store ``/data``, path
``orders``: its siblings are reachable, so clones resolve.  The path is written into clones and compared as a string
(docs/reference/protocol.md 0.1), so it is normalised here and nowhere else.
"""

import os
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote, unquote, urlsplit

from shale.core.lazy_dataclass import dataclass
from shale.core.suggestions import suggest
from shale.errors import InvalidRequestError, WrongType

UrlOrPath: TypeAlias = str | os.PathLike[str]
"""A URL, or the path of a directory of this machine; inside a store: a path below it."""

BUCKET_SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "azure": "az"}
"""Accepted schemes of bucket stores, and their canonical forms."""

_FORBIDDEN_IN_PATH = re.compile(r"[\x00-\x1f\x7f-\xff\\{}^%`\]\[\"<>~#|*?]")
"""Characters that stores or SlateDB would escape: the same path must be the same string everywhere."""


_SIBLINGS_MAX = 1000
"""Entries of a directory that are compared with a misspelled name."""


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


def parse_location(
    url: UrlOrPath | None = None, store: UrlOrPath | None = None, path: UrlOrPath | None = None
) -> Location:
    """Parse either the URL of a database, or the URL of a store and a path in it.

    Raises:
        InvalidRequestError: neither or both were given, or one of them is malformed.
    """
    if url is not None:
        if store is not None or path is not None:
            raise InvalidRequestError("give either a URL, or a store and a path, not both")
        return _split_database_url(url_of(url, "the database"))
    if store is None:
        raise InvalidRequestError(
            "no database was named: give a URL such as file:///data/orders or s3://bucket/orders, a pathlib.Path, "
            "or a store and a path"
        )
    return Location(parse_store_url(store), normalize_path("" if path is None else path))


def url_of(where: object, what: str) -> str:
    """Return a URL as it is, and the path of a directory as a URL; a relative path begins at the working directory.

    Args:
        where: a URL or a path; other objects are refused.
        what: names the argument in errors.

    Raises:
        WrongType: neither text nor a path.
        InvalidRequestError: a path that begins with ``~``.
    """
    if isinstance(where, str):
        return where
    path = os.fspath(where) if isinstance(where, os.PathLike) else None
    if not isinstance(path, str):
        raise WrongType(f"{what} is of type {type(where).__name__}: give a URL (a str) or a pathlib.Path")
    if path.startswith("~"):
        raise InvalidRequestError(f"{path}: '~' is not replaced by the home directory: call expanduser() on the path")
    return f"file://{quote(os.path.abspath(path))}"  # noqa: PTH100 - the path may be any PathLike


def parse_store_url(url: UrlOrPath) -> str:
    """Return the canonical form of the URL of a bucket or directory."""
    scheme, authority, path = _parts(url_of(url, "the store"))
    if scheme in ("file", "memory"):
        return _directory_url(path) if scheme == "file" else f"memory://{authority}/"
    if path.strip("/"):
        raise InvalidRequestError(f"{url}: the URL of a store names only a bucket; give the rest as the path")
    return f"{BUCKET_SCHEMES[scheme]}://{authority}"


def normalize_path(path: UrlOrPath) -> str:
    """Return the canonical form of a database path: segments joined by ``/``, none of them empty, ``.`` or ``..``."""
    if not isinstance(path, str):
        path = _path_in_store(path)
    if "://" in path:
        raise InvalidRequestError(f"{path} is a URL: give the path of the database in its store, such as teams/orders")
    if found := _FORBIDDEN_IN_PATH.search(path):
        raise InvalidRequestError(f"the database path {path!r} contains {found.group()!r}: not every store can name it")
    segments = [segment for segment in path.split("/") if segment]
    if any(segment in (".", "..") for segment in segments):
        raise InvalidRequestError(f"the database path {path!r} has a segment that is '.' or '..'")
    return "/".join(segments)


def _path_in_store(path: object) -> str:
    text = os.fspath(path) if isinstance(path, os.PathLike) else None
    if not isinstance(text, str):
        raise WrongType(f"the path in the store is of type {type(path).__name__}: give a str or a pathlib.Path")
    if text.startswith("/"):
        raise InvalidRequestError(f"{text}: with a store, the path of the database is relative to it")
    return text


def directory_of(store_url: str) -> str:
    """Return the directory of a ``file://`` store URL."""
    return unquote(urlsplit(store_url).path) or "/"


def require_in_store(store_url: str, root: str, others: Iterable[str]) -> None:
    """Check that the databases whose SSTs a clone uses are in its store; only a directory store is checked, in place.

    Args:
        store_url: the store of the clone.
        root: the path of the clone in it.
        others: the paths of the other databases.

    Raises:
        InvalidRequestError: one of them is not in this store, but in that of a directory above.
    """
    if not store_url.startswith("file://"):
        return
    directory = Path(directory_of(store_url))
    for other in others:
        if _has_database(directory / other):
            continue
        for above in directory.parents:
            if _has_database(above / other):
                inner = (directory / root).relative_to(above).as_posix()
                url = _directory_url(above.as_posix())
                raise InvalidRequestError(
                    f"{Location(store_url, root).url} is a clone that uses SSTs of {other}, which is not in its store "
                    f"{store_url} but in {url}: open it by store and path, store={url!r} and path={inner!r}, "
                    f"or --store {url} --path {inner}"
                )


def similar_database(store_url: str, root: str) -> str:
    """Return ``; did you mean …?`` for the database beside ``root`` with the closest name, or an empty string.

    Only a directory store is searched.
    """
    if not store_url.startswith("file://"):
        return ""
    parent, name = Path(directory_of(store_url), root).parent, root.rpartition("/")[2]
    try:
        beside = [each.name for each in islice(parent.iterdir(), _SIBLINGS_MAX) if _has_database(each)]
    except OSError:
        return ""
    return suggest(name, [each for each in beside if each != name])


def remains_of_database(store_url: str, root: str) -> list[str]:
    """Return the directories with files of a database whose manifests are lost; only a directory store is searched."""
    if not store_url.startswith("file://"):
        return []
    directory = Path(directory_of(store_url), root)
    try:
        return [name for name in ("compacted", "wal") if any((directory / name).glob("*.sst"))]
    except OSError:
        return []


def _has_database(directory: Path) -> bool:
    return (directory / "manifest").is_dir()


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
        raise InvalidRequestError(
            f"{url}: names a store, not a database in it: add the path of the database, such as "
            f"{Location(location.store_url, 'orders').url}"
        )
    return location


def _parts(url: str) -> tuple[str, str, str]:
    """Return scheme, authority and unescaped path of a supported URL."""
    if "://" not in url:
        raise InvalidRequestError(
            f"{url!r} is not a URL such as file:///data/orders or s3://bucket/orders; "
            "for a directory, give pathlib.Path(…) or a URL that begins with file:///"
        )
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidRequestError(f"{without_credentials(url)}: not a URL: {error}") from None
    scheme, path = parts.scheme.lower(), unquote(parts.path)
    if parts.query or parts.fragment:
        raise InvalidRequestError(
            f"{without_credentials(url)}: a location has no query and no fragment; give options as keywords"
        )
    if scheme == "file":
        if parts.netloc not in ("", "localhost") or not path.startswith("/"):
            raise InvalidRequestError(
                f"{without_credentials(url)}: write file:///absolute/path, with three slashes, or give a pathlib.Path"
            )
        if any(segment in (".", "..") for segment in path.split("/")):
            raise InvalidRequestError(f"{url}: the directory has a segment that is '.' or '..'")
        return scheme, "", path
    if scheme != "memory" and scheme not in BUCKET_SCHEMES:
        hint = suggest(scheme, ("file", "memory", *BUCKET_SCHEMES))
        if scheme in ("http", "https"):
            hint = "; to reach a running writer, use shale.client"
        raise InvalidRequestError(f"{without_credentials(url)}: unknown scheme; use file, memory, s3, gs or az{hint}")
    if "@" in parts.netloc:
        raise InvalidRequestError(
            f"{without_credentials(url)}: credentials must not be in a URL: set store_options, or the variables of the "
            "cloud"
        )
    if scheme in BUCKET_SCHEMES and not parts.netloc:
        raise InvalidRequestError(f"{url}: the bucket is missing: write {scheme}://bucket/path")
    return scheme, parts.netloc, path


def _directory_url(path: str) -> str:
    return "file://" + quote("/" + "/".join(segment for segment in path.split("/") if segment))


def without_credentials(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url.rpartition("@")[2]
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
