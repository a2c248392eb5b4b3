"""The settings of a stop, and of the end after a failure (docs/concepts/shutdown.md)."""

from pydantic import Field

from shale.service.config.section import Section
from shale.service.config.sections import PositiveSeconds, Seconds


class ShutdownSection(Section):
    """Time limits of a graceful stop."""

    drain_delay: Seconds = Field(
        default=0.0, description="Time from not ready to rejecting requests, for load balancers."
    )
    request_timeout: PositiveSeconds = Field(default=10.0, description="How long running requests may take to finish.")
    deadline: PositiveSeconds = Field(
        default=25.0, description="Time limit of the whole stop; after it the process exits with 75."
    )
    linger: Seconds = Field(
        default=0.0,
        description="How long a process that ends with 65, 70, 78, 80 or 81 still serves its metrics at most, for a "
        "last scrape; the image sets 40s.",
    )
    linger_scrapes: int = Field(
        default=1,
        ge=0,
        description="After so many scrapes by Prometheus such a process exits at once: as many as there are servers "
        "that scrape it; 0: after shutdown.linger only.",
    )
