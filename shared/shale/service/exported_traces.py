"""Sets OpenTelemetry's SDK up for a daemon: OTLP over HTTP, with the standard variables ``OTEL_…``."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from shale.env import Env
from shale.errors import InvalidRequestError
from shale.service.build import version
from shale.service.config.tracing_section import TracingSection
from shale.telemetry import tracing

HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
FLUSH_MS = 2000
"""How long the last spans may take at the end of a process."""


@contextmanager
def exported_traces(section: TracingSection, env: Env, *, role: str, db: str) -> Iterator[None]:
    """Make and export spans until the block ends, if the settings say so.

    Raises:
        InvalidRequestError: OpenTelemetry is not installed.
    """
    if not section.enabled:
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON
    except ImportError as error:
        raise InvalidRequestError(
            f"tracing.enabled needs OpenTelemetry, and {error.name} is not installed: pip install 'shale[otel]'"
        ) from error
    logging.getLogger("opentelemetry.util.re").addFilter(_hide_header)
    ours = Resource({"service.name": f"shale-{role}", "service.version": version()})
    # The variables OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
    resource = ours.merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, sampler=ALWAYS_ON, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    attributes: tracing.Attributes = {"db.system.name": "slatedb", "db.namespace": db}
    tracer = provider.get_tracer("shale", version())
    tracing.enable(tracing.Tracing(tracer, env, ratio=section.sample_ratio, attributes=attributes))
    try:
        yield
    finally:
        tracing.enable(None)
        provider.force_flush(FLUSH_MS)
        provider.shutdown()


def _hide_header(record: logging.LogRecord) -> bool:
    """Replace a warning about a header that is not ``name=value``: it quotes the header, which may be a token."""
    record.msg, record.args = f"{HEADERS}: a header was ignored: write name=value, with values as in URLs", ()
    return True
