"""A writer sends its spans over OTLP: which ones, whose children they are, and what logs and metrics say."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import redis
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import shale
import shale.sync
from shale.service.exit_codes import ExitCode
from shale.store.options import StoreOptions
from tests.integration.daemons.daemon_process import running
from tests.integration.store.servers import SECRET, http_server, s3_environment, s3_server
from tests.integration.writer.writer_process import Client, writer

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
WAIT_S = 30.0


class Collector:
    """Spans by name, as they arrive."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resource: dict[str, str] = {}
        self._arrived = threading.Condition()

    def take(self, body: bytes) -> None:
        with self._arrived:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resource = {each.key: each.value.string_value for each in resource.resource.attributes}
                self.spans += [span for scope in resource.scope_spans for span in scope.spans]
            self._arrived.notify_all()

    def wait_for(self, name: str) -> Any:
        """Return the first span of this name."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: self.named(name), WAIT_S), {span.name for span in self.spans}
            return self.named(name)[0]

    def path_to(self, span: Any) -> list[Any]:
        """Return the spans from the root to this one, as far as they have arrived."""
        above = [each for each in self.spans if each.span_id == span.parent_span_id]
        return [*(self.path_to(above[0]) if above else ()), span]

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]


@pytest.fixture
def collector() -> Iterator[tuple[Collector, dict[str, str]]]:
    one = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            one.take(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Write nothing."""

    with http_server(Handler) as url:
        yield one, {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "100"}


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def flags(sampled: bool) -> str:
    return f"00-{TRACE}-{PARENT}-{'01' if sampled else '00'}"


def client_spans(client: Client, collector: Collector, *, sampled: bool) -> Any:
    assert client.put(b"k", b"v", traceparent=flags(sampled))[0] == 204
    return collector.wait_for("slatedb.put") if sampled else None


def test_a_write_of_a_caller_that_is_traced(collector: tuple[Collector, dict[str, str]], tmp_path: Path) -> None:
    spans, env = collector
    with writer(tmp_path, "--set", "tracing.enabled=true", "--set", "tracing.sample_ratio=0", env=env) as client:
        put = client_spans(client, spans, sampled=True)
        assert (put.trace_id.hex(), put.parent_span_id.hex()) == (TRACE, PARENT)
        said = attributes(put)
        assert said["db.system.name"] == "slatedb"
        assert (said["db.operation.name"], said["http.response.status_code"]) == ("put", 204)
        flush = spans.wait_for("wal.flush")
        assert [link.span_id for link in flush.links] == [put.span_id]
        assert flush.trace_id != put.trace_id
        stored = spans.wait_for("object_store.put")
        assert (stored.trace_id, stored.parent_span_id) == (flush.trace_id, flush.span_id)
        assert spans.resource["service.name"] == "shale-writer"
        accept = {"Accept": "application/openmetrics-text"}
        _, text = client.daemon.get("/metrics", port=client.admin_port, headers=accept)
        exemplars = [line for line in text.splitlines() if f'trace_id="{TRACE}"' in line]
        assert len(exemplars) == 1
        assert exemplars[0].startswith("shale_http_request_duration_seconds_bucket")
        assert client.daemon.stop() == ExitCode.OK


@pytest.mark.slow
def test_only_errors_of_a_caller_that_is_not_traced(
    collector: tuple[Collector, dict[str, str]], tmp_path: Path
) -> None:
    spans, env = collector
    settings = ("--set", "tracing.enabled=true", "--set", "tracing.sample_ratio=1", "--set", "shutdown.linger=0")
    with writer(tmp_path, *settings, env=env) as client:
        for _ in range(20):
            client_spans(client, spans, sampled=False)
        assert client.call("GET", "/v1/kv/none", traceparent="garbage")[0] == 404
        lookup = spans.wait_for("slatedb.get")
        assert attributes(lookup)["http.response.status_code"] == 404
        assert lookup.parent_span_id == b""
        assert spans.named("slatedb.put") == []
        assert client.daemon.stop() == ExitCode.OK


def test_nothing_is_sent_by_default(collector: tuple[Collector, dict[str, str]], tmp_path: Path) -> None:
    spans, env = collector
    with writer(tmp_path, env=env) as client:
        assert client.put(b"k", b"v", traceparent=flags(sampled=True))[0] == 204
        assert client.daemon.stop() == ExitCode.OK
    assert spans.spans == []


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "opentelemetry.py").write_text("")
    options = ("--url", f"file://{tmp_path}/db", "--port", "0", "--set", "tracing.enabled=true")
    with running("shale_writer", *options, log=tmp_path / "log", is_fresh=True) as daemon:
        assert daemon.process.wait(60) == ExitCode.CONFIG
        assert "pip install 'shale[otel]'" in daemon.log.read_text()


@pytest.mark.slow
def test_a_read_from_a_bucket_shows_its_requests(collector: tuple[Collector, dict[str, str]], tmp_path: Path) -> None:
    spans, env = collector
    with s3_server("traces") as endpoint:
        config = {"endpoint": endpoint, "access_key_id": SECRET, "secret_access_key": SECRET, "region": "us-east-1"}
        with shale.sync.Db.open("s3://traces/orders", store_options=StoreOptions(config=config)) as before:
            before.put(b"k", b"v")
            before.flush("memtable")
        options = ("--url", "s3://traces/orders", "--port", "0", "--set", "tracing.enabled=true")
        resp = ("--set", "resp.enabled=true", "--set", "resp.port=0", "--set", "tracing.sample_ratio=1")
        with running(
            "shale_writer", *options, *resp, log=tmp_path / "log", env=env | s3_environment(endpoint)
        ) as daemon:
            client = Client(daemon)
            assert client.get(b"k")[:2] == (200, b"v")
            with redis.Redis(port=daemon.port("resp_port")) as other:
                assert other.get("k") == b"v"
            spans.wait_for("slatedb.get")  # it ends, and so arrives, after the spans below it
            paths = {
                tuple(each.name for each in spans.path_to(span)): attributes(span)["slatedb.object"]
                for span in spans.named("object_store.get_range")
            }
            for step in ("sst.index", "sst.blocks"):
                path = paths["slatedb.get", "lookup", step, "object_store.get_range"]
                assert path.startswith("orders/compacted/")
            command = spans.wait_for("GET orders")
            assert attributes(command)["network.protocol.name"] == "resp"
            accept = {"Accept": "application/openmetrics-text"}
            _, text = daemon.get("/metrics", port=client.admin_port, headers=accept)
            exemplars = [line for line in text.splitlines() if f'trace_id="{command.trace_id.hex()}"' in line]
            assert [line.partition("{")[0] for line in exemplars] == ["shale_resp_command_duration_seconds_bucket"]
            assert daemon.stop() == ExitCode.OK
