"""The settings of traces."""

from pydantic import Field

from shale.service.config.section import Section


class TracingSection(Section):
    """Traces of OpenTelemetry."""

    enabled: bool = Field(default=False, description="Whether spans are exported; needs `shale[otel]`.")
    sample_ratio: float = Field(
        default=0.01,
        ge=0.0,
        le=1.0,
        description="Share of requests and WAL flushes that are traced, unless the caller has decided; errors,"
        " memtable flushes, compactions and passes of the gc always are.",
    )
