"""Options and settings of the collector."""

from pathlib import Path

import pytest

from shale.errors import InvalidRequestError
from shale.gc.options import FENCE_MIN_AGE_S, GcOptions, Task, TaskOptions
from shale.service.config.settings import load_settings
from shale.service.config.settings_error import SettingsError
from shale_gc.settings import GcSettings

URL = ["--url", "memory:///db"]


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHALE_SECRETS_DIR", str(tmp_path))


def options(*argv: str) -> GcOptions:
    return load_settings(GcSettings, [*URL, *argv]).settings.options()


def test_defaults_are_the_documented_ones() -> None:
    assert options() == GcOptions()
    assert GcOptions().enabled == (
        Task.MANIFEST,
        Task.WAL,
        Task.COMPACTED,
        Task.COMPACTIONS,
        Task.DETACH,
        Task.STAGED,
    )
    assert GcOptions().manifest == TaskOptions(interval_s=600, min_age_s=300, dry_run=False)


def test_slatedbs_names_are_read() -> None:
    chosen = options(
        "--set", "garbage_collector_options.manifest_options.min_age=2h", "--set", "delete_concurrency=3",
        "--set", "garbage_collector_options.wal_options.interval=90s",
    )  # fmt: skip
    assert chosen.manifest == TaskOptions(min_age_s=7200)
    assert chosen.wal == TaskOptions(interval_s=90)
    assert chosen.delete_concurrency == 3


def test_dry_run_reaches_every_task() -> None:
    chosen = options("--dry-run")
    tasks = [chosen.task(task) for task in chosen.enabled]
    assert all(task is not None and task.dry_run for task in tasks)


def test_fences_must_be_a_week_old() -> None:
    with pytest.raises(InvalidRequestError, match="7 days"):
        GcOptions(wal_fence=TaskOptions(min_age_s=FENCE_MIN_AGE_S - 1))
    assert GcOptions(wal_fence=TaskOptions(min_age_s=FENCE_MIN_AGE_S)).enabled[2] is Task.WAL_FENCE
    assert GcOptions(wal_fence=TaskOptions(min_age_s=300, dry_run=True)), "as in SlateDB's default settings"


def test_a_version_is_not_believed_for_longer_than_it_is_kept() -> None:
    short = TaskOptions(min_age_s=10)
    with pytest.raises(InvalidRequestError, match="probe_max_staleness"):
        GcOptions(compactions=short, probe_max_staleness_s=10)
    assert GcOptions(compactions=short).protocol().probe_max_staleness_s == 5
    assert GcOptions().protocol().probe_max_staleness_s == 60


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--set", "garbage_collector_options.boundary_files_enabled=false"), "boundary_files_off_acknowledged"),
        (("--set", "garbage_collector_options.wal_options.min_age=-1s"), "min_age"),
        (("--set", "garbage_collector_options.wal_options.interval=0s"), "interval"),
        (("--set", "garbage_collector_options.wal_option.min_age=1s"), "wal_options"),
        (("--set", 'garbage_collector_options.wal_fence_options={min_age = "1h"}'), "7 days"),
    ],
)
def test_mistakes_are_named(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        options(*argv)
