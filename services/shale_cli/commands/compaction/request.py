"""Builds a compaction request from the options of ``shale compaction submit``."""

from typing import TYPE_CHECKING

from shale.errors import InvalidRequestError

if TYPE_CHECKING:
    from shale.compaction.requests import CompactionRequest
    from shale_cli.framework.output.writer import Output


def build_request(
    output: "Output",
    *,
    full: bool = False,
    sources: str | None = None,
    destination: int | None = None,
    segment: str | None = None,
    drain: bool = False,
    request: str | None = None,
) -> "CompactionRequest":
    """Build the request.

    Raises:
        InvalidRequestError: the options name no request, several requests, or contradict each other.
    """
    from shale.compaction.requests import Full, FullSegment, Sources, Spec, parse_sources
    from shale.types import DrainSpec, RunId

    if sum((full, sources is not None, request is not None)) != 1:
        raise InvalidRequestError("give exactly one of --full, --sources and --request")
    if sources is None and (destination is not None or drain):
        raise InvalidRequestError("--destination and --drain need --sources")
    if request is not None:
        if segment is not None:
            raise InvalidRequestError("--segment cannot be used with --request: put the segment into the JSON")
        return parse_text(request)
    prefix = b"" if segment is None else output.parse(segment)
    if sources is None:
        return Full() if segment is None else FullSegment(prefix)
    views, runs = parse_sources(sources)
    if not drain:
        chosen = None if destination is None else RunId(destination)
        return Sources(l0_view_ids=views, sorted_runs=runs, destination=chosen, segment=prefix)
    if destination is not None:
        raise InvalidRequestError("--drain writes nothing: remove --destination")
    return Spec(DrainSpec(segment=prefix, l0_view_ids=views, sorted_runs=runs))


def parse_text(text: str) -> "CompactionRequest":
    """Parse a request from JSON text; ``Full`` needs no quotes.

    Raises:
        InvalidRequestError: the text is not JSON, or not a request.
    """
    import orjson

    from shale.compaction.requests import Full, parse_request

    if text.strip() == "Full":
        return Full()
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"--request is not JSON: {error}") from error
    return parse_request(value)
