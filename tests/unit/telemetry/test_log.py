"""Log lines: form, levels, redaction, rate limit."""

import ast
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import structlog

from shale.errors import CorruptionError, UnavailableError
from shale.telemetry import log as log_module
from shale.telemetry.events import Event
from shale.telemetry.key_format import format_key
from shale.telemetry.log import RateLimit, get_logger
from shale.telemetry.log_output import configure_logging, level_name, set_level
from tests.paths import REPOSITORY


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    log_module.RATE_LIMIT.__init__()  # type: ignore[misc]
    stream = io.StringIO()
    configure_logging(level="info", format_="json", stream=stream)
    yield stream
    root.handlers[:] = before
    root.setLevel(level)
    logging.getLogger("shale").setLevel(logging.NOTSET)


def _read(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_json_with_the_event_and_its_fields(lines: io.StringIO) -> None:
    get_logger("gc", db="orders").info(Event.GC_DELETE, resource="manifest", count=3, boundary=41)
    (line,) = _read(lines)
    assert list(line)[:5] == ["ts", "level", "event", "component", "db"]
    assert line["event"] == "gc.delete"
    assert line["level"] == "info"
    assert (line["resource"], line["count"], line["boundary"]) == ("manifest", 3, 41)
    assert str(line["ts"]).endswith("Z")
    assert "." in str(line["ts"])


def test_levels_change_at_run_time(lines: io.StringIO) -> None:
    log = get_logger("wal")
    log.debug(Event.WAL_FLUSH_OK, wal_id=1)
    set_level("debug")
    log.debug(Event.WAL_FLUSH_OK, wal_id=2)
    assert [line["wal_id"] for line in _read(lines)] == [2]
    assert level_name() == "debug"


def test_lines_of_other_libraries_have_the_same_form(lines: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").warning("port %d is busy", 8080)
    (line,) = _read(lines)
    assert line["event"] == "port 8080 is busy"
    assert line["component"] == "uvicorn.error"
    assert line["level"] == "warning"


def test_secrets_and_whole_keys_never_reach_the_log(lines: io.StringIO) -> None:
    get_logger("config").info(
        Event.CONFIG_RELOADED,
        auth_token="abc123",
        key=b"customer:0815:secret",
        url="s3://user:hunter2@bucket/db?X-Amz-Signature=deadbeef&x=1",
        nested={"password": "hunter2"},
    )
    text = lines.getvalue()
    assert not [word for word in ("abc123", "hunter2", "deadbeef", "0815") if word in text]
    assert _read(lines)[0]["key"] == "20:" + b"customer".hex()


def test_the_same_error_is_written_once_a_second_and_counted(
    monkeypatch: pytest.MonkeyPatch, lines: io.StringIO
) -> None:
    now = iter([0.0, 0.1, 0.2, 0.3, 1.5])
    monkeypatch.setattr(log_module.time, "monotonic", lambda: next(now))
    log = get_logger("gc")
    for _ in range(3):
        log.error(Event.GC_TASK_FAILED, resource="wal", error=UnavailableError("no answer"))
    log.error(Event.GC_TASK_FAILED, resource="wal", error=CorruptionError("bad"))
    log.error(Event.GC_TASK_FAILED, resource="wal", error=UnavailableError("no answer"))
    seen = [(line["error_type"], line.get("suppressed")) for line in _read(lines)]
    assert seen == [("network", None), ("corruption", None), ("network", 2)]


def test_rate_limit_forgets_the_count_when_it_reports_it() -> None:
    limit = RateLimit()
    assert [limit.admit("e", "t", at) for at in (0.0, 0.5, 1.0, 1.2, 3.0)] == [0, None, 1, None, 1]


PASSWORD = "hunter2"


def _fail(password: str) -> None:
    url = f"http://user:{password}@store:1/a?sig={password}"
    try:
        raise ConnectionError(f"{url} is away")
    except ConnectionError as error:
        raise ValueError("boom at " + url) from error


def test_tracebacks_are_frames_without_local_variables_and_secrets(lines: io.StringIO) -> None:
    try:
        _fail(PASSWORD)
    except ValueError as error:
        get_logger("service").error(Event.DAEMON_FAILED, error=error, exc_info=True)
    (line,) = _read(lines)
    assert "hunter2" not in lines.getvalue()
    assert line["error"] == "boom at http://user:***@store:1/a?sig=***"
    assert isinstance(line["exception"], list)
    assert "is away" in lines.getvalue()


def test_tracebacks_on_a_console_have_neither(lines: io.StringIO) -> None:
    console = io.StringIO()
    configure_logging(level="info", format_="console", stream=console)
    try:
        _fail(PASSWORD)
    except ValueError as error:
        get_logger("service").error(Event.DAEMON_FAILED, error=error, exc_info=True)
        logging.getLogger("asyncio").exception("a task failed")
    assert PASSWORD not in console.getvalue()
    assert console.getvalue().count("ConnectionError: http://user:***@store:1/a?sig=*** is away") == 2
    assert console.getvalue().count('raise ValueError("boom at " + url) from error') == 2


def test_a_console_gets_no_control_characters(lines: io.StringIO) -> None:
    console = io.StringIO()
    configure_logging(level="info", format_="console", stream=console)
    paths = ["\x1b]0;owned\x07\x1b[2J", "a\nFAKE [info] done", "\x9b2J\u202e\u2028\r\x7f", "\ud800é漢"]
    for path in paths:
        get_logger("audit").warning(Event.ADMIN_CALL_REFUSED, role="none", path=path, nested=[path], reason="x")
        logging.getLogger("uvicorn.error").warning("at %s", path)
    text = console.getvalue()
    shown = text.splitlines()
    assert len(shown) == 2 * len(paths)
    assert all(each.isprintable() for each in shown)
    assert "\\x1b]0;owned\\x07\\x1b[2J" in shown[0]
    assert "\\x9b2J\\u202e\\u2028\\r\\x7f" in shown[4]
    assert "\\ud800é漢" in shown[6]


def test_a_traceback_on_a_console_keeps_its_lines(lines: io.StringIO) -> None:
    console = io.StringIO()
    configure_logging(level="info", format_="console", stream=console)
    try:
        raise ValueError("\x1b[2J boom")
    except ValueError as error:
        get_logger("service").error(Event.DAEMON_FAILED, error=error, exc_info=True)
    assert "\nValueError: \\x1b[2J boom" in console.getvalue()
    assert "\x1b" not in console.getvalue()


@pytest.mark.parametrize(
    ("key", "shown"),
    [(b"", "0:"), (b"abc", "3:616263"), (bytes(range(20)), "20:0001020304050607")],
)
def test_keys_are_shown_as_length_and_eight_bytes(key: bytes, shown: str) -> None:
    assert format_key(key) == shown


def _calls() -> Iterator[tuple[str, str, str]]:
    for path in [*REPOSITORY.glob("shared/shale/**/*.py"), *REPOSITORY.glob("services/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.args
                and isinstance(node.args[0], ast.Attribute)
                and isinstance(node.args[0].value, ast.Name)
                and node.args[0].value.id == "Event"
            ):
                yield f"{path.relative_to(REPOSITORY)}:{node.lineno}", node.func.attr, node.args[0].attr


@pytest.mark.slow
def test_every_call_uses_the_level_of_the_catalogue() -> None:
    """``gc.delete`` also has a line per object, at DEBUG; the catalogue says so."""
    wrong = [
        (where, method, name)
        for where, method, name in _calls()
        if method in {"debug", "info", "warning", "error", "critical"}
        and method != Event[name].level
        and (method, name) != ("debug", "GC_DELETE")
    ]
    assert wrong == []


def test_events_are_dotted_lower_case_names() -> None:
    for event in Event:
        assert (
            event.value == event.name.lower().replace("_", ".") or event.value.replace(".", "_") == event.name.lower()
        )


def test_a_line_goes_through_structlog(lines: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    original = structlog.stdlib.BoundLogger.info

    def info(self: structlog.stdlib.BoundLogger, event: str | None = None, *args: object, **fields: object) -> object:
        seen.append(event)
        return original(self, event, *args, **fields)

    monkeypatch.setattr(structlog.stdlib.BoundLogger, "info", info)
    get_logger("gc").info(Event.GC_DELETE, count=1)
    assert seen == [Event.GC_DELETE]
    assert len(_read(lines)) == 1


def test_a_logger_that_writes_nothing_imports_no_structlog() -> None:
    code = (
        "import logging, sys; from shale.telemetry.events import Event; from shale.telemetry.log import get_logger;"
        "logging.getLogger('shale').setLevel(logging.WARNING); get_logger('gc').info(Event.GC_DELETE);"
        "sys.exit('structlog' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=False).returncode == 0


def test_a_program_that_embeds_the_library_formats_lines_itself() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
    logger = logging.getLogger("shale.embedded")
    logger.addHandler(handler)
    try:
        get_logger("embedded").warning(Event.CLONE_INCOMPLETE, count=2)
    finally:
        logger.removeHandler(handler)
    assert stream.getvalue().startswith("WARNING shale.embedded {'event': 'clone.incomplete', 'component': 'embedded'")


_PROGRAM = """
import logging, sys
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
if sys.argv[1:]:
    logging.basicConfig(format="own: %(message)s")
log = get_logger("memtable")
log.info(Event.MEMTABLE_FLUSH_STALLED, hint="too early")
log.warning(Event.STORE_REQUEST_FAILING, op="get")
log.warning(Event.MEMTABLE_FLUSH_STALLED, l0_ssts=8, hint="start a compactor")
"""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], ["shale: memtable.flush.stalled: start a compactor"]),
        (["configured"], ["own: {'event': 'store.request.failing'", "own: {'event': 'memtable.flush.stalled'"]),
    ],
    ids=["no logging", "logging of its own"],
)
def test_a_program_without_logging_is_told_what_to_do(arguments: list[str], told: list[str]) -> None:
    """And nothing else; one with logging gets all warnings, once."""
    command = [sys.executable, "-c", _PROGRAM, *arguments]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()
    assert [line.partition(", ")[0] for line in lines] == told
