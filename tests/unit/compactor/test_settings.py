"""Settings become options, with SlateDB's names (docs/how-to/configure.md)."""

from operator import concat

import pytest

from shale.compaction.policies.leveled import Leveled
from shale.compaction.policies.size_tiered import SizeTiered
from shale.compaction.policies.time_window import TimeWindow
from shale.errors import InvalidRequestError
from shale.service.config.scheduler_section import POLICY_NAMES, SchedulerSection, takes
from shale.service.config.settings import load_settings
from shale.service.config.settings_error import SettingsError
from shale.types import Compression
from shale_compactor.compactor import CompactorOptions
from shale_compactor.execution.transforms import NO_TRANSFORMS
from shale_compactor.settings import CompactorSettings
from shale_compactor.worker.settings import WorkerSettings
from tests.paths import REPOSITORY

URL = ("--url", "memory:///db")


def options(*argv):
    return load_settings(CompactorSettings, [*URL, *argv]).settings.options()


def test_the_defaults_are_those_of_the_parts():
    found = options("--set", "compactor_options.worker.name=embedded", "--set", "cpu_threads=2")
    assert found == CompactorOptions()


def test_a_settings_file_of_slatedb_is_read_as_it_is(tmp_path):
    file = tmp_path / "SlateDb.toml"
    file.write_text(
        """
        flush_interval = "100ms"
        compression_codec = "zstd"
        [compactor_options]
        poll_interval = "2s"
        max_concurrent_compactions = 3
        commit_compacted_interval = "500ms"
        worker_heartbeat_timeout = "1m"
        [compactor_options.scheduler_options]
        min_compaction_sources = "2"
        include_size_threshold = "3.5"
        [compactor_options.worker]
        max_sst_size = 1048576
        heartbeat_interval = "20s"
        max_subcompactions = 2
        max_fetch_tasks = 8
        """
    )
    found = options("--config", str(file))
    assert found.coordinator.poll_interval_s == 2.0
    assert found.coordinator.scheduler.min_compaction_sources == 2
    assert found.coordinator.scheduler.include_size_threshold == 3.5
    assert found.coordinator.max_concurrent_compactions == 3
    assert found.coordinator.worker_heartbeat_timeout_s == 60.0
    assert found.worker.heartbeat_interval_s == 20.0
    assert found.executor.max_sst_size_bytes == 1024 * 1024
    assert found.executor.sst.compression is Compression.ZSTD


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        pytest.param("compactor_options.worker.heartbeat_interval=20s", "heartbeat_interval", id="slow heartbeat"),
        pytest.param("compactor_options.scheduler_options.min_compaction_sources=9", "max_compaction", id="min > max"),
        pytest.param("compactor_options.poll_interval=0", "greater than 0", id="no interval"),
        pytest.param("compactor_options.scheduler_options.policy=levelled", "'leveled'", id="no such policy"),
        pytest.param("compactor_options.scheduler_options.window=1h", "option of time_window", id="not this policy's"),
        pytest.param("block_size_bytes=65537", "65536", id="blocks that lookups cannot find their way in"),
        pytest.param("compactor_options.pol_interval=1s", "poll_interval", id="a typing error"),
    ],
)
def test_contradictions_are_refused(setting, named):
    with pytest.raises(SettingsError) as error:
        options("--set", setting)
    assert named in str(error.value.problems)


SCHEDULER = "compactor_options.scheduler_options."


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        pytest.param((), SizeTiered(), id="size-tiered unless told otherwise"),
        pytest.param(("policy=leveled",), Leveled(), id="leveled"),
        pytest.param(
            ("policy=leveled", "level_base_bytes=64MiB", "level_size_multiplier=8", "max_compaction_sources=6"),
            Leveled(level_base_bytes=64 * 1024 * 1024, level_size_multiplier=8.0, max_compaction_sources=6),
            id="its options",
        ),
        pytest.param(
            ("policy=time_window", "window=15m", "default_ttl=1d", "max_windows=100"),
            TimeWindow(window_s=900.0, default_ttl_s=86400.0, max_windows=100),
            id="time windows",
        ),
    ],
)
def test_the_policy_is_a_setting(given, policy):
    arguments = [word for each in given for word in ("--set", SCHEDULER + each)]
    assert options(*arguments).coordinator.scheduler == policy


def test_all_mistakes_in_a_policy_are_told_at_once():
    given = ("policy=time_window", "level_base_bytes=1", "max_windows=3", "default_ttl=1d", "max_compaction_sources=1")
    with pytest.raises(SettingsError) as error:
        options(*[word for each in given for word in ("--set", SCHEDULER + each)])
    (problem,) = error.value.problems
    for named in ("level_base_bytes is an option of leveled", "max_windows 3 of 3600 s", "max_compaction_sources must"):
        assert named in problem


def test_flags():
    found = options("--take-over", "--no-embedded-worker")
    assert found.take_over
    assert not found.embedded_worker


def transforms(*assignments):
    argv = [part for assignment in assignments for part in ("--set", f"compactor_options.worker.{assignment}")]
    return load_settings(CompactorSettings, [*URL, *argv]).settings.transforms()


def test_operators_and_filters_are_named_in_settings():
    found = transforms("merge_operator=operator:concat", 'compaction_filters=["builtins:dict","builtins:list"]')
    assert found.operator is concat
    assert [(each.name, each.make) for each in found.filters] == [("builtins:dict", dict), ("builtins:list", list)]
    assert transforms() == NO_TRANSFORMS


@pytest.mark.parametrize("setting", ["merge_operator=sum-of-numbers", 'compaction_filters=["sum-of-numbers"]'])
def test_an_unknown_name_is_refused_with_its_place(setting):
    with pytest.raises(InvalidRequestError, match=r"^compactor_options\.worker\S*: no .* is called 'sum-of-numbers'"):
        transforms(setting)


def test_boundary_files_are_not_switched_off_by_accident():
    """The writer and the collector have the same check."""
    off = ("--set", "boundary_files_enabled=false")
    with pytest.raises(SettingsError, match="boundary_files_off_acknowledged"):
        options(*off)
    sure = load_settings(CompactorSettings, [*URL, *off, "--set", "boundary_files_off_acknowledged=true"]).settings
    assert not sure.protocol().boundary_files_enabled


def test_every_option_of_every_policy_is_told_to_operators():
    page = (REPOSITORY / "docs" / "how-to" / "compaction-policies.md").read_text()
    for name in set(SchedulerSection.model_fields) - {"policy"}:
        takers = [policy for policy in POLICY_NAMES if takes(policy, name)]
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        told = row.split("|")[2]
        assert all(f"`{policy}`" in told for policy in takers) or told.strip() == "all", name
        assert (len(takers) == len(POLICY_NAMES)) == (told.strip() == "all"), name


@pytest.mark.parametrize("text", ["builtins:dict, builtins:list", '["builtins:dict", "builtins:list"]'])
def test_a_list_of_filters_from_the_environment(monkeypatch, text):
    monkeypatch.setenv("SHALE_COMPACTOR_OPTIONS__WORKER__COMPACTION_FILTERS", text)
    assert [each.make for each in transforms().filters] == [dict, list]


def test_what_is_wrong_between_settings_is_said_without_a_place():
    """The error concerns several settings, so it names the place of none."""
    with pytest.raises(SettingsError) as error:
        load_settings(WorkerSettings, [*URL, "--set", "compactor_options.worker.heartbeat_interval=20s"])
    (problem,) = error.value.problems
    assert problem.startswith("heartbeat_interval 20.0 s must be at most half")


@pytest.mark.parametrize("settings", [CompactorSettings, WorkerSettings])
def test_a_misspelt_variable_of_a_section_that_is_read_is_told(monkeypatch, settings):
    monkeypatch.setenv("SHALE_COMPACTOR_OPTIONS__WORKER__HEARTBEAT_INTERVL", "5s")
    monkeypatch.setenv("SHALE_GARBAGE_COLLECTOR_OPTIONS__NOBODY_KNOWS", "of another daemon")
    (told,) = load_settings(settings, URL).unknown_env
    assert told.startswith("SHALE_COMPACTOR_OPTIONS__WORKER__HEARTBEAT_INTERVL; did you mean")


def test_a_worker_reads_the_file_of_a_compactor(tmp_path):
    file = tmp_path / "shale.toml"
    file.write_text(
        """
        [compactor_options]
        poll_interval = "2s"
        worker_heartbeat_timeout = "1m"
        [compactor_options.scheduler_options]
        min_compaction_sources = 2
        [compactor_options.worker]
        heartbeat_interval = "20s"
        max_concurrent_compactions = 2
        """
    )
    settings = load_settings(WorkerSettings, [*URL, "--config", str(file)]).settings
    assert settings.worker_options().heartbeat_interval_s == 20.0
    assert settings.worker_options().max_concurrent_compactions == 2
    assert settings.protocol().component == "worker"
    with pytest.raises(SettingsError, match="pol_interval"):
        load_settings(WorkerSettings, [*URL, "--set", "compactor_options.pol_interval=1s"])
