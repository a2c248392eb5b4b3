"""Options of the engine are built from equally named settings."""

from dataclasses import dataclass, fields
from typing import Any

import pytest

from shale.engine.options import DbOptions
from shale.engine.reader.options import ReaderOptions
from shale.service.config.engine_options import options_from
from shale.service.config.section import Section
from shale.service.config.settings import DaemonSettings
from shale_reader.settings import ReaderSettings
from shale_writer.settings import WriterSettings

DATABASE: dict[str, Any] = {"url": "memory:///db"}
NOT_SETTINGS = {
    *("cache", "create_if_missing", "take_over", "defer_checkpoint_release"),
    *("compactor", "gc", "max_background_jobs", "stall_timeout"),
}
"""Options for callers of the library only."""

DERIVED = {
    "compression",
    "default_ttl_ms",
    "filter_policies",
    "max_parallel_writes",
    "wal_ack",
    "wal_epoch_metadata",
    "wal_flush_bytes",
}
"""Options that are converted from settings with other names."""


class Times(Section):
    """A section with a duration and a plain value."""

    pause: float = 2.0
    count: int = 3


@dataclass(frozen=True)
class TimesOptions:
    """Options for it, one of which has no setting."""

    pause_s: float
    count: int
    depth: int = 7


def test_a_duration_loses_its_unit_and_the_rest_keeps_its_name() -> None:
    assert options_from(TimesOptions, Times()) == TimesOptions(pause_s=2.0, count=3, depth=7)


def test_given_values_override_settings() -> None:
    assert options_from(TimesOptions, Times(), count=5, depth=1) == TimesOptions(pause_s=2.0, count=5, depth=1)


@pytest.mark.parametrize(
    ("settings", "options"), [(WriterSettings, DbOptions), (ReaderSettings, ReaderOptions)], ids=["writer", "reader"]
)
def test_every_option_of_the_engine_has_a_setting(settings: type[DaemonSettings], options: type[Any]) -> None:
    names = {field.name.removesuffix("_s") for field in fields(options)} - NOT_SETTINGS - DERIVED
    assert names - settings.model_fields.keys() == set()


def test_settings_reach_the_engine() -> None:
    writer = WriterSettings(
        database=DATABASE,
        flush_interval="250ms",
        default_ttl_millis=5,
        compression_codec="zstd",
        l0_max_ssts=9,
        wal={"flush_bytes": "4MiB", "epoch_metadata": False},
    )
    options = writer.options()
    assert (options.flush_interval_s, options.default_ttl_ms, options.l0_max_ssts) == (0.25, 5, 9)
    assert options.compression.name == "ZSTD"
    assert (options.wal_flush_bytes, options.wal_epoch_metadata) == (4 << 20, False)
    reader = ReaderSettings(database=DATABASE, manifest_poll_interval="3s", enforce_visible_range={"start": "a"})
    assert reader.options().manifest_poll_interval_s == 3.0
    assert reader.options().enforce_visible_range is not None
