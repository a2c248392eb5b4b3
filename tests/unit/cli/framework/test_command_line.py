"""Parsing, rendering and exit codes, without a database."""

from dataclasses import replace

import pytest

from shale.admin.json_values import rfc3339
from shale.errors import (
    AccessDenied,
    AlreadyExists,
    CheckpointMissing,
    ClosedError,
    CorruptionError,
    FencedError,
    InvalidRequestError,
    InvalidVersion,
    LatestRecordMissing,
    NotFoundError,
    ProtocolPanic,
    ShaleError,
    StoreUnsafe,
    UnavailableError,
)
from shale.service.exit_codes import ExitCode
from shale.types import Manifest, Ulid
from shale_cli.commands import help_topics
from shale_cli.framework.output.to_json import to_json
from shale_cli.framework.output.writer import Format, KeyEncoding, Output
from shale_cli.framework.session import CliSession, GlobalOptions, execute


@pytest.mark.parametrize("key_format", list(KeyEncoding))
@pytest.mark.parametrize("key", [b"plain", b"", bytes(range(256)), "ü€😀".encode(), b"a\nb\tc"])
def test_keys_survive_their_format(key_format: KeyEncoding, key: bytes) -> None:
    output = Output(Format.JSON, key_format)
    shown = output.show(key)
    assert shown.isprintable()
    if key_format is not KeyEncoding.UTF8 or key.decode("utf-8", "replace").isprintable():
        assert output.parse(shown) == key


@pytest.mark.parametrize(
    ("key_format", "text"),
    [
        (KeyEncoding.HEX, "xy"),
        (KeyEncoding.BASE64, "a"),
        (KeyEncoding.REPR, "'text'"),
        (KeyEncoding.REPR, "b'"),
        pytest.param(KeyEncoding.REPR, "{[]: 1}", id="a list as a name"),
        pytest.param(KeyEncoding.REPR, "-" * 10_000 + "1", id="too many signs"),
        pytest.param(KeyEncoding.REPR, "b'a'+" * 5000 + "b'a'", id="too long a sum"),
    ],
)
def test_what_is_no_key_is_refused(key_format: KeyEncoding, text: str) -> None:
    with pytest.raises(InvalidRequestError, match="is not"):
        Output(Format.JSON, key_format).parse(text)


def test_times_are_rfc_3339() -> None:
    assert rfc3339(1_795_264_950_903) == "2026-11-21T12:42:30.903Z"
    assert rfc3339(0) == "1970-01-01T00:00:00.000Z"


def test_values_become_plain_json() -> None:
    data = to_json(Manifest(last_l0_clock_tick=-5))
    assert data["sequence_tracker_b64"] == "AQAAAAAAAAAAAAAAAA=="
    assert data["last_l0_clock_tick"] == -5
    assert data["tree"]["l0"] == []
    assert to_json(Ulid(5)) == "00000000000000000000000005"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LatestRecordMissing("memory:///db: x"), 3),
        (CheckpointMissing("x"), 3),
        (InvalidRequestError("x"), 2),
        (CorruptionError("x", path="p", offset=3), 65),
        (InvalidVersion("x"), 65),
        (UnavailableError("x"), 69),
        (ProtocolPanic("x"), 70),
        (AlreadyExists("x"), 75),
        (AccessDenied("x"), 77),
        (FencedError("x"), 80),
        (StoreUnsafe("x"), 81),
        (ClosedError("x"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ShaleError) else str(value),
)
@pytest.mark.parametrize("grouped", [False, True])
def test_errors_have_their_exit_code_and_one_line(
    error: ShaleError, code: int, grouped: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work(session: CliSession) -> None:
        raise ExceptionGroup("several", [error]) if grouped else error

    options = GlobalOptions(url="memory:///db", output=Output(Format.JSON, KeyEncoding.UTF8))
    assert execute(options, work) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    absent = isinstance(error, NotFoundError) and not str(error).startswith("memory:")
    assert captured.err == f"shale: {'memory:///db: ' if absent and not grouped else ''}{error}\n"


def test_what_a_command_returns_is_its_code_and_time_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    import anyio

    async def negative(session: CliSession) -> int:
        return ExitCode.NEGATIVE

    async def endless(session: CliSession) -> None:
        await anyio.sleep_forever()

    output = Output(Format.JSON, KeyEncoding.UTF8)
    assert execute(GlobalOptions(url="memory:///db", output=output), negative) == 4
    assert execute(GlobalOptions(url="memory:///db", output=output, timeout="20ms"), endless) == 69
    assert "memory:///db: timed out after 0.02 s" in capsys.readouterr().err
    assert execute(GlobalOptions(url="memory:///db", output=output, timeout="20ms"), endless, timed_out=75) == 75
    assert "timed out" in capsys.readouterr().err
    assert execute(GlobalOptions(url="memory:///db", output=output, timeout="soon"), endless) == 2
    assert "--timeout" in capsys.readouterr().err


def test_where_a_mistake_stands_decides_its_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(session: CliSession) -> None:
        raise AssertionError("not reached")

    output = Output(Format.JSON, KeyEncoding.UTF8)
    for name in ("SHALE_URL", "SHALE_STORE", "SHALE_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert execute(GlobalOptions(output=output), work) == 2
    assert execute(GlobalOptions(url="nonsense", output=output), work) == 2
    monkeypatch.setenv("SHALE_URL", "nonsense")
    assert execute(GlobalOptions(output=output), work) == 78
    monkeypatch.setenv("SHALE_URL", "memory:///db")
    monkeypatch.setenv("SHALE_STORE__REQUEST_TIMEOUT", "soon")
    assert execute(GlobalOptions(output=output), work) == 78
    assert "SHALE_STORE__REQUEST_TIMEOUT" in capsys.readouterr().err


def test_every_exit_code_is_explained() -> None:
    assert set(help_topics.EXIT_CODE_MEANINGS) == {code.name for code in ExitCode}


def test_a_session_without_settings_is_that_of_default_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable with a default value makes the command load the settings."""

    def session(options: GlobalOptions) -> CliSession:
        found: list[CliSession] = []

        async def work(session: CliSession) -> None:
            found.append(session)

        assert execute(options, work) == ExitCode.OK
        return found[0]

    output = Output(Format.JSON, KeyEncoding.UTF8)
    for options in (
        GlobalOptions(url="s3://bucket/a/b", wal_store="s3://logs", output=output),
        GlobalOptions(store="file:///data", output=output),
    ):
        alone = session(options)
        with monkeypatch.context() as patch:
            patch.setenv("SHALE_CPU_THREADS", "2")
            configured = session(options)
        assert replace(alone, env=configured.env) == configured
