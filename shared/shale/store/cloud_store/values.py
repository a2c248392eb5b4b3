"""Converts values of the port to obstore's and back.

An etag of the port is what a conditional put of the store needs.  For S3 and Azure that is the etag, always with its
quotes, which Azure leaves out in listings.  Google Cloud Storage compares generations in puts and etags in reads, so
there it is ``<etag>#<generation>``; its listings know no generations.
"""

from collections.abc import Mapping
from typing import Any

from shale.errors import InvalidRequestError
from shale.store.port import Create, ETag, GetResult, ObjectMeta, PutMode, Update


def etag_of(found: Any, *, by_generation: bool) -> ETag | None:
    """Return the etag in obstore's result of a put, a get or a listing."""
    etag: str | None = found["e_tag"]
    if etag is None:
        return None
    quoted = etag if etag.startswith(('"', "W/")) else f'"{etag}"'
    return f"{quoted}#{found['version']}" if by_generation and found["version"] else quoted


def http_etag(etag: ETag) -> str:
    """Return the etag for a conditional read."""
    return etag.rpartition("#")[0] or etag


def mode_of(mode: PutMode, *, by_generation: bool) -> Any:
    """Return obstore's mode for the condition of a put."""
    match mode:
        case Create():
            return "create"
        case Update(etag=etag) if not by_generation:
            return {"e_tag": etag}
        case Update(etag=etag):
            quoted, _, generation = etag.rpartition("#")
            if not quoted:
                raise InvalidRequestError(f"an update needs a generation, and {etag!r} has none")
            return {"e_tag": quoted, "version": generation}
        case _:
            return "overwrite"


def meta_of(found: Any, attributes: Mapping[str, str] | None = None, *, by_generation: bool) -> ObjectMeta:
    """Return the metadata in an obstore result."""
    modified_ms = int(found["last_modified"].timestamp() * 1000)
    etag = etag_of(found, by_generation=by_generation)
    return ObjectMeta(found["path"], found["size"], modified_ms, etag, attributes)


def head_of(answer: Any, *, by_generation: bool) -> ObjectMeta:
    """Return the metadata of a get, without standard headers, whose names begin with a capital letter."""
    attributes = {name: value for name, value in answer.attributes.items() if not name[:1].isupper()}
    return meta_of(answer.meta, attributes, by_generation=by_generation)


def whole(answer: Any, *, by_generation: bool) -> GetResult:
    """Return the body and the metadata of a get."""
    return GetResult(memoryview(answer.bytes()), head_of(answer, by_generation=by_generation))
