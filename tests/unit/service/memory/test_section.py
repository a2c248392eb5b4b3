"""Sizes that follow from ``memory.limit``."""

import re
from pathlib import Path

import pytest

from shale.server.settings import ServerSettings
from shale.service.config.settings import DaemonSettings, load_settings
from shale.service.config.settings_error import SettingsError
from shale.service.memory import section
from shale.service.memory.connection_memory import connection_bytes
from shale.service.memory.container import AvailableMemory
from shale_compactor.settings import CompactorSettings
from shale_compactor.worker.settings import WorkerSettings
from shale_reader.settings import ReaderSettings
from shale_writer.settings import WriterSettings

MIB = 1 << 20
URL = ["--url", "memory:///orders"]


def _load(kind: type[DaemonSettings], *assignments: str) -> DaemonSettings:
    sets = [word for each in assignments for word in ("--set", each)]
    return load_settings(kind, [*URL, *sets]).settings


@pytest.mark.parametrize("kind", [WriterSettings, ReaderSettings, CompactorSettings, WorkerSettings])
@pytest.mark.parametrize("limit", ["179MiB", "358MiB", "1GiB"])
@pytest.mark.parametrize("more", [(), ("resp.enabled=true",)])
def test_a_small_container_works_with_the_defaults(
    kind: type[DaemonSettings], limit: str, more: tuple[str, ...]
) -> None:
    """All sizes fit, and they are valid together: a copy of the settings is checked as given settings are."""
    given = more if "http" in kind.model_fields else ()
    settings = _load(kind, f"memory.limit={limit}", *given)
    again = kind.model_validate(settings.model_dump(exclude={"compactor_options": {"scheduler_options"}}))
    assert again.memory_shares() == settings.memory_shares()


def test_a_large_limit_changes_no_default() -> None:
    """The defaults are what they were."""
    settings = _load(WriterSettings, "memory.limit=8GiB")
    assert isinstance(settings, WriterSettings)
    assert settings.max_unflushed_bytes == 1024 * MIB
    assert settings.l0_sst_size_bytes == 64 * MIB
    assert settings.http.max_inflight_bytes == 128 * MIB
    assert (settings.http.max_connections, settings.http.max_connections_per_address) == (4096, 2048)


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("kind", [WriterSettings, ReaderSettings])
def test_connections_fit_into_a_small_container(kind: type[ServerSettings], tls: bool, tmp_path: Path) -> None:
    """Those that no client uses, too; with TLS each takes four times as much."""
    given = [f"memory.limit={179 * MIB}", "resp.enabled=true"]
    if tls:
        given += [f"tls.cert_file={tmp_path}/tls.crt", f"tls.key_file={tmp_path}/tls.key"]
    settings = _load(kind, *given)
    assert isinstance(settings, ServerSettings)
    each = connection_bytes(tls=tls)
    most = settings.http.max_connections + settings.resp.max_connections
    assert 8 * MIB < most * each < 16 * MIB
    assert settings.http.max_connections_per_address == settings.http.max_connections // 2
    assert settings.resp.max_connections_per_address == settings.resp.max_connections // 2


def test_given_connections_stay() -> None:
    """And take memory from the sizes that are not given."""
    few = _load(WriterSettings, "memory.limit=358MiB", "http.max_connections=100")
    many = _load(WriterSettings, "memory.limit=358MiB", "http.max_connections=4096")
    assert isinstance(few, WriterSettings)
    assert isinstance(many, WriterSettings)
    assert (few.http.max_connections, many.http.max_connections) == (100, 4096)
    assert many.block_cache_bytes < few.block_cache_bytes


@pytest.mark.parametrize(
    ("given", "connections", "has_problem"),
    [((), (2055, 1027), False), (("--set", "block_cache_bytes=400MiB"), (4096, 2048), True)],
)
def test_connections_are_the_default_where_given_sizes_do_not_fit(
    given: tuple[str, ...], connections: tuple[int, int], has_problem: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that only warns of its sizes serves as many clients as with much memory."""
    monkeypatch.setattr(section, "available_memory", lambda: AvailableMemory(512 * MIB, "the container"))
    loaded = load_settings(WriterSettings, [*URL, *given])
    http = loaded.settings.http
    assert (http.max_connections, http.max_connections_per_address) == connections
    assert (loaded.memory.problem is not None) == has_problem


def test_a_small_memory_has_room_for_all_parts() -> None:
    """With both ports and TLS."""
    _load(WriterSettings, "memory.limit=128MiB", "resp.enabled=true", "tls.cert_file=/tls.crt", "tls.key_file=/tls.key")


def test_given_sizes_stay_and_the_others_follow() -> None:
    """As many bytes as are left."""
    settings = _load(WriterSettings, "memory.limit=358MiB", "max_unflushed_bytes=100MiB", "l0_sst_size_bytes=50MiB")
    assert isinstance(settings, WriterSettings)
    assert (settings.max_unflushed_bytes, settings.l0_sst_size_bytes) == (100 * MIB, 50 * MIB)
    assert settings.block_cache_bytes < 64 * MIB


def test_given_sizes_that_do_not_fit_are_an_error_with_their_sum() -> None:
    """It names each setting with its size."""
    with pytest.raises(SettingsError) as refused:
        _load(WriterSettings, "memory.limit=358MiB", "max_unflushed_bytes=1GiB")
    (problem,) = refused.value.problems
    assert re.search(r"need more than 358.0 MiB \(memory.limit\): the process \(80.0 MiB\) \+ 1.75 x", problem)
    assert "max_unflushed_bytes (1.0 GiB)" in problem
    assert problem.endswith("= 1.8 GiB; lower them, or raise the limit")
