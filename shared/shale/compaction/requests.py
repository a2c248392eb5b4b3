"""Compaction requests, and their specs for a database (docs/reference/protocol.md 6.13).

A request says what to compact; ``resolve`` turns it into one spec per tree.  ``Full`` never includes L0s: they would be
in use for as long as the merge runs, and the writer would stall.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from shale.compaction.specs import fresh_run_id, name_of_segment
from shale.core.json_numbers import without_fraction
from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidCompaction, InvalidRequestError
from shale.types import Compactions, CompactionSpec, DrainSpec, Manifest, RunId, TieredSpec, Tree, Ulid

_RUN_ID_MAX = 2**32 - 1
_DIGITS_MAX = 20


@dataclass(frozen=True, slots=True)
class Full:
    """Merge all runs of each tree into its oldest run."""


@dataclass(frozen=True, slots=True)
class FullSegment:
    """Merge all runs of one tree; an empty prefix is the root tree."""

    segment: bytes


@dataclass(frozen=True, slots=True)
class Spec:
    """Exactly this merge or drain, with its sources in the given order."""

    spec: CompactionSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Merge these L0s and runs of one tree, given in any order; the destination is derived unless given."""

    l0_view_ids: tuple[Ulid, ...] = ()
    sorted_runs: tuple[RunId, ...] = ()
    destination: RunId | None = None
    segment: bytes = b""

    def __post_init__(self) -> None:
        views: tuple[object, ...] = self.l0_view_ids
        for view_id in views:
            # A string prints like its ULID, so the error of V4 would name a view that exists.
            if not isinstance(view_id, Ulid):
                raise InvalidRequestError(f"l0_view_ids: {view_id!r} is no Ulid; parse_sources parses text")


CompactionRequest = Full | FullSegment | Spec | Sources


def resolve(request: CompactionRequest, manifest: Manifest, compactions: Compactions) -> tuple[CompactionSpec, ...]:
    """Return the specs of a request, the root tree first; empty if no tree has runs.

    Args:
        compactions: active compactions, whose destinations a derived destination avoids.

    Raises:
        InvalidCompaction: the segment does not exist (V3), or has no runs (V1).
    """
    match request:
        case Full():
            plans = (_all_runs(prefix, tree) for prefix, tree in manifest.trees())
            return tuple(spec for spec in plans if spec is not None)
        case FullSegment(segment):
            tree = manifest.tree_of(segment)
            if tree is None:
                raise InvalidCompaction(
                    "V3", f"segment {name_of_segment(segment)} does not exist; {segments_of(manifest)}"
                )
            spec = _all_runs(segment, tree)
            if spec is None:
                where = f"segment {name_of_segment(segment)}" if segment else "the root tree"
                message = f"{where} has no sorted runs; its {len(tree.l0)} L0s are compacted by the scheduler"
                raise InvalidCompaction("V1", message)
            return (spec,)
        case Spec(spec):
            return (spec,)
        case Sources():
            return (_of_sources(request, manifest, compactions),)
    raise InvalidRequestError(f"{request!r} is no request: Full(), FullSegment(…), Sources(…) or Spec(…)")


def parse_request(value: object) -> CompactionRequest:
    """Parse a decoded JSON request; SlateDB's older short forms are accepted.

    Raises:
        InvalidRequestError: names the missing or malformed field.
    """
    if value == "Full":
        return Full()
    if not isinstance(value, Mapping) or len(value) != 1:
        raise InvalidRequestError('request: write "Full", {"FullSegment": …} or {"Spec": …}')
    ((form, content),) = value.items()
    match form:
        case "Full" if content is None or content == {}:
            return Full()
        case "FullSegment":
            fields = _fields(content, "FullSegment", ("segment",))
            return FullSegment(_segment(fields.get("segment", []), "FullSegment.segment"))
        case "Spec":
            return _parse_spec(content)
        case _:
            raise InvalidRequestError(f"request: {form!r} is none of Full, FullSegment, Spec")


def parse_sources(text: str) -> tuple[tuple[Ulid, ...], tuple[RunId, ...]]:
    """Parse ``SR3,SR2`` or ``01J…,SR3`` into L0 view ids and run ids.

    Raises:
        InvalidRequestError: a name is neither, or the list is empty.
    """
    views: list[Ulid] = []
    runs: list[RunId] = []
    for name in (part.strip() for part in text.split(",")):
        ulid = Ulid.parse(name.upper())
        number = name.upper().removeprefix("SR")
        if ulid is not None:
            views.append(ulid)
        elif number.isascii() and number.isdigit() and len(number) <= _DIGITS_MAX and int(number) <= _RUN_ID_MAX:
            runs.append(RunId(int(number)))
        else:
            raise InvalidRequestError(f"sources: {name!r} is neither a run such as SR3 nor the ULID of an L0")
    return tuple(views), tuple(runs)


def request_json(request: CompactionRequest) -> Any:
    """Return a request as plain JSON values for ``parse_request``."""
    match request:
        case Full():
            return "Full"
        case FullSegment(segment):
            return {"FullSegment": {"segment": list(segment)}}
        case Spec(DrainSpec() as spec):
            return {"Spec": {"DrainSegment": {"segment": list(spec.segment), "sources": _sources_json(spec)}}}
        case Spec(TieredSpec() as spec):
            return {"Spec": {"Tiered": _tiered_json(spec, spec.destination)}}
        case Sources(destination=destination):
            return {"Spec": _tiered_json(request, destination)}


def _all_runs(segment: bytes, tree: Tree) -> TieredSpec | None:
    runs = tuple(run.id for run in tree.compacted)
    return TieredSpec(segment=segment, sorted_runs=runs, destination=min(runs)) if runs else None


def _of_sources(request: Sources, manifest: Manifest, compactions: Compactions) -> TieredSpec:
    """Order the sources as in the tree; missing ones come last, and V4 names them."""
    tree = manifest.tree_of(request.segment) or Tree()
    places = {view.id: index for index, view in enumerate(tree.l0)}
    views = tuple(sorted(dict.fromkeys(request.l0_view_ids), key=lambda view: places.get(view, len(places))))
    runs = tuple(sorted(set(request.sorted_runs), reverse=True))
    destination = request.destination
    if destination is None:
        destination = min(runs) if runs else fresh_run_id(manifest, compactions)
    return TieredSpec(segment=request.segment, l0_view_ids=views, sorted_runs=runs, destination=destination)


def segments_of(manifest: Manifest) -> str:
    """Return the list of segments as the end of a sentence."""
    names = [name_of_segment(segment.prefix) for segment in manifest.segments]
    return f"there are {', '.join(names)} (in hex)" if names else "the database has no segments"


def _parse_spec(content: object) -> CompactionRequest:
    fields = _fields(content, "Spec", ("Tiered", "DrainSegment", "segment", "sources", "destination"))
    if "Tiered" in fields and len(fields) == 1:
        tiered = _fields(fields["Tiered"], "Spec.Tiered", ("segment", "sources", "destination"))
        return _tiered(tiered, "Spec.Tiered")
    if "DrainSegment" in fields and len(fields) == 1:
        drain = _fields(fields["DrainSegment"], "Spec.DrainSegment", ("segment", "sources"))
        views, runs = _sources(drain.get("sources"), "Spec.DrainSegment.sources")
        segment = _segment(drain.get("segment", []), "Spec.DrainSegment.segment")
        return Spec(DrainSpec(segment=segment, l0_view_ids=views, sorted_runs=runs))
    if "Tiered" in fields or "DrainSegment" in fields:
        raise InvalidRequestError("Spec: Tiered or DrainSegment, and nothing beside it")
    return _tiered(fields, "Spec")


def _tiered(fields: Mapping[str, object], where: str) -> CompactionRequest:
    views, runs = _sources(fields.get("sources"), f"{where}.sources")
    segment = _segment(fields.get("segment", []), f"{where}.segment")
    destination = fields.get("destination")
    if destination is None:
        return Sources(segment=segment, l0_view_ids=views, sorted_runs=runs)
    run_id = _run_id(destination, f"{where}.destination")
    return Spec(TieredSpec(segment=segment, l0_view_ids=views, sorted_runs=runs, destination=run_id))


def _sources(value: object, where: str) -> tuple[tuple[Ulid, ...], tuple[RunId, ...]]:
    """Split sources into L0s and runs, which the format stores in two lists; each keeps the order of the request."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InvalidRequestError(f'{where}: a list of {{"SortedRun": 3}} and {{"SstView": "01J…"}}')
    views: list[Ulid] = []
    runs: list[RunId] = []
    for index, source in enumerate(value):
        place = f"{where}[{index}]"
        if not isinstance(source, Mapping) or len(source) != 1:
            raise InvalidRequestError(f'{place}: {{"SortedRun": 3}} or {{"SstView": "01J…"}}')
        ((kind, name),) = source.items()
        if kind == "SortedRun":
            runs.append(_run_id(name, place))
        elif kind in ("SstView", "Sst"):
            ulid = Ulid.parse(name.upper()) if isinstance(name, str) else None
            if ulid is None:
                raise InvalidRequestError(f"{place}: {name!r} is not a ULID")
            views.append(ulid)
        else:
            raise InvalidRequestError(f"{place}: {kind!r} is neither SortedRun nor SstView")
    return tuple(views), tuple(runs)


def _run_id(value: object, where: str) -> RunId:
    value = without_fraction(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _RUN_ID_MAX:
        raise InvalidRequestError(f"{where}: {value!r} is not the id of a sorted run")
    return RunId(value)


def _segment(value: object, where: str) -> bytes:
    """Parse a prefix: a list of byte values as SlateDB writes it, or text."""
    if isinstance(value, str):
        return value.encode()
    numbers = [*map(without_fraction, value)] if isinstance(value, Sequence) else None
    if numbers is None or not all(map(_is_byte, numbers)):
        raise InvalidRequestError(f"{where}: a list of numbers from 0 to 255, or text")
    return bytes(cast("list[int]", numbers))


def _is_byte(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 256


def _fields(value: object, where: str, known: tuple[str, ...]) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise InvalidRequestError(f"{where}: a table with {', '.join(known)}")
    unknown = [name for name in value if name not in known]
    if unknown:
        raise InvalidRequestError(f"{where}.{unknown[0]}: no such field; there are {', '.join(known)}")
    return value


def _sources_json(spec: CompactionSpec | Sources) -> list[dict[str, object]]:
    views: list[dict[str, object]] = [{"SstView": str(view_id)} for view_id in spec.l0_view_ids]
    return views + [{"SortedRun": int(run_id)} for run_id in spec.sorted_runs]


def _tiered_json(spec: TieredSpec | Sources, destination: RunId | None) -> dict[str, object]:
    found: dict[str, object] = {"segment": list(spec.segment), "sources": _sources_json(spec)}
    return found if destination is None else {**found, "destination": int(destination)}
