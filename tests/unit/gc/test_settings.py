"""Options and settings of the collector."""

from pathlib import Path

import pytest

from shale.errors import InvalidRequestError
from shale.gc.options import DAY_S, FENCE_MIN_AGE_S, GcOptions, Task, TaskOptions, options_for
from shale.protocol.options import MissingBoundary, ProtocolOptions
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


@pytest.mark.parametrize(
    ("name", "task"), [("manifest", Task.MANIFEST), ("wal_fence", Task.WAL_FENCE), ("wal-fence", Task.WAL_FENCE)]
)
def test_names_of_tasks(name: str, task: Task) -> None:
    assert Task.named(name) is task
    with pytest.raises(InvalidRequestError, match="'walfence' is none of manifest, wal, wal_fence, compacted, "):
        Task.named("walfence")


@pytest.mark.parametrize(("interval_s", "min_age_s"), [(0, 1), (-1, 1), (1, -0.001)])
def test_times_of_a_task_that_are_refused(interval_s: float, min_age_s: float) -> None:
    with pytest.raises(InvalidRequestError, match="positive interval and no negative min_age"):
        TaskOptions(interval_s=interval_s, min_age_s=min_age_s)


def test_the_shortest_times_of_a_task() -> None:
    assert TaskOptions(interval_s=0.001, min_age_s=0).min_age_ms == 0
    assert TaskOptions(min_age_s=1.5).min_age_ms == 1500


@pytest.mark.parametrize(
    ("concurrency", "grace_s", "words"), [(0, 1, "delete_concurrency"), (1, -1, "delete_grace_period")]
)
def test_options_that_are_refused(concurrency: int, grace_s: float, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        GcOptions(delete_concurrency=concurrency, delete_grace_period_s=grace_s)
    assert GcOptions(delete_concurrency=1, delete_grace_period_s=0).delete_grace_period_s == 0
    assert GcOptions(delete_grace_period_s=None).delete_grace_period_s is None


SHORT, DRY = TaskOptions(min_age_s=10), TaskOptions(min_age_s=1, dry_run=True)


@pytest.mark.parametrize(
    ("manifest", "compactions", "staleness_s"),
    [
        (SHORT, SHORT, 5),
        (SHORT, None, 5),
        (None, SHORT, 5),
        (SHORT, DRY, 5),
        (TaskOptions(min_age_s=120), TaskOptions(min_age_s=118), 59),
        (TaskOptions(min_age_s=120), TaskOptions(min_age_s=122), 60),
        (DRY, None, 60),
        (None, None, 60),
    ],
)
def test_a_version_is_known_for_half_of_the_time_that_it_is_kept(
    manifest: TaskOptions | None, compactions: TaskOptions | None, staleness_s: float
) -> None:
    protocol = GcOptions(manifest=manifest, compactions=compactions).protocol()
    assert protocol == ProtocolOptions(component="gc", probe_max_staleness_s=staleness_s)


def test_options_of_the_protocol_are_passed_on() -> None:
    chosen = GcOptions(
        probe_max_staleness_s=9.5,
        manifest=SHORT,
        missing_boundary=MissingBoundary.ZERO,
        boundary_files_enabled=False,
        manifest_write_version=1,
    )
    assert chosen.protocol() == ProtocolOptions(
        component="gc",
        probe_max_staleness_s=9.5,
        missing_boundary=MissingBoundary.ZERO,
        boundary_files_enabled=False,
        manifest_write_version=1,
    )


def test_options_of_chosen_tasks() -> None:
    chosen = options_for({Task.WAL: None, Task.WAL_FENCE: None, Task.MANIFEST: 7.0})
    assert chosen.enabled == (Task.MANIFEST, Task.WAL, Task.WAL_FENCE)
    assert [options.min_age_s for task in chosen.enabled if (options := chosen.task(task))] == [7, 300, 7 * DAY_S]
    assert (chosen.delete_grace_period_s, chosen.boundary_files_enabled) == (None, True)
    other = options_for({}, boundary_files_enabled=False, delete_grace_period_s=5.0)
    assert (other.enabled, other.delete_grace_period_s, other.boundary_files_enabled) == ((), 5.0, False)


@pytest.mark.parametrize(
    ("argv", "port"),
    [((), 9464), (("--once",), 0), (("--once", "--admin-port", "9464"), 9464), (("--set", "once=true"), 0)],
)
def test_one_pass_takes_no_port_of_a_daemon_beside_it(argv: tuple[str, ...], port: int) -> None:
    """Unless the port is set: a pass that was started by hand failed while a daemon ran."""
    assert load_settings(GcSettings, [*URL, *argv]).settings.admin_listen_port == port
