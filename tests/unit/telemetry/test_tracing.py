"""Which spans are made, and what they hold, on OpenTelemetry's own exporter in memory."""

from collections.abc import Iterator

import pytest
from opentelemetry.trace import StatusCode

from shale.errors import UnavailableError
from shale.telemetry import tracing
from shale.telemetry.tracing import LINKS_MAX
from tests.unit.telemetry.spans import Spans

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-"


@pytest.fixture
def spans(request: pytest.FixtureRequest) -> Iterator[Spans]:
    one = Spans(getattr(request, "param", 0.0))
    tracing.enable(one.traces)
    yield one
    tracing.enable(None)


@pytest.mark.parametrize(
    "header", [None, "", "00", "ff" + PARENT[2:] + "01", "x" * 55, PARENT + "zz", "00-" + "é" * 60]
)
def test_a_request_without_a_decision_is_kept_by_chance(header: str | None) -> None:
    assert not Spans(0.0).traces.keeps(header)
    assert Spans(1.0).traces.keeps(header)
    some = Spans(0.1).traces
    assert 50 < sum(some.keeps(header) for _ in range(1000)) < 150


def test_the_share_may_change() -> None:
    traces = Spans(0.0).traces
    traces.sample(1.0)
    assert traces.keeps(None)
    traces.sample(0.0)
    assert not traces.keeps(None)


def test_a_caller_decides() -> None:
    assert Spans(0.0).traces.keeps(PARENT + "01")
    assert not Spans(1.0).traces.keeps(PARENT + "00")


@pytest.mark.parametrize("header", ["00-" + "0" * 32 + "-" + "0" * 16 + "-01", "00-" + "g" * 32 + PARENT[35:] + "01"])
def test_ids_that_are_invalid_begin_a_trace(header: str, spans: Spans) -> None:
    with spans.traces.request("slatedb.get", header, {}):
        pass
    (span,) = spans.ended()
    assert span.parent is None


def test_steps_belong_to_the_span_around_them(spans: Spans) -> None:
    with tracing.step("object_store.get"):
        pass
    with tracing.job("gc.run", resource="wal"), tracing.step("object_store.get"):
        pass
    step, job = spans.ended()
    assert (step.name, job.name) == ("object_store.get", "gc.run")
    assert step.parent is not None
    assert job.context is not None
    assert step.parent.span_id == job.context.span_id
    assert dict(job.attributes or {}) == {"db.namespace": "orders", "resource": "wal"}


def test_a_job_inside_a_request_has_a_trace_of_its_own(spans: Spans) -> None:
    with spans.traces.request("slatedb.put", PARENT + "01", {}), tracing.job("memtable.flush"):
        pass
    job, request = spans.ended()
    assert job.context is not None
    assert request.context is not None
    assert job.context.trace_id != request.context.trace_id


def test_an_error_is_named(spans: Spans) -> None:
    with pytest.raises(UnavailableError), tracing.job("compaction.job"):
        raise UnavailableError("http://user:hunter2@store:1 is away")
    (span,) = spans.ended()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "http://user:***@store:1 is away")
    (event,) = span.events
    assert event.attributes == {
        "exception.type": "UnavailableError",
        "exception.message": "http://user:***@store:1 is away",
    }
    assert (span.attributes or {})["error.type"] == UnavailableError.kind


def test_a_flush_has_links_to_the_newest_writes(spans: Spans) -> None:
    ids = []
    for _ in range(LINKS_MAX + 5):
        with spans.traces.request("slatedb.put", None, {}) as write:
            spans.traces.link_next_flush(write)
            ids.append(write.context.span_id)
    with tracing.flush("wal.flush"):
        pass
    with tracing.flush("wal.flush"):
        pass
    *_, flush = spans.ended()
    assert flush.name == "wal.flush"
    assert [link.context.span_id for link in flush.links] == ids[-LINKS_MAX:]


def test_a_failure_that_was_not_kept_has_the_time_that_it_took(spans: Spans) -> None:
    spans.traces.failed_request("slatedb.put", 0.25, {"http.response.status_code": 503})
    (span,) = spans.ended()
    assert span.status.status_code is StatusCode.ERROR
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.end_time - span.start_time == 250_000_000


def test_nothing_is_made_while_tracing_is_off() -> None:
    assert tracing.active() is None
    with tracing.job("a"), tracing.flush("b"), tracing.step("c"):
        pass
