"""Progress of a command while Spark works, and where Java's output goes."""

import subprocess
import sys
from collections.abc import Sequence

import anyio
import pytest

from shale_cli.framework.output.writer import Format, KeyEncoding, Output
from shale_spark.cli import progress
from shale_spark.cli.java_log import JavaLog
from shale_spark.cli.progress import StageProgress, watching

STAGE = StageProgress(id=3, tasks=40, done=12, running=2, failed=0)


def test_a_stage_in_words() -> None:
    assert STAGE.line() == "stage 3: 12 of 40 tasks, 2 running"
    assert StageProgress(4, 2, 0, 1, 3).line().endswith("1 running, 3 failed")


async def _watch(quiet: bool, looks: int) -> None:
    seen = 0
    enough = anyio.Event()

    def look() -> Sequence[StageProgress]:
        nonlocal seen
        seen += 1
        if seen >= looks:
            anyio.from_thread.run_sync(enough.set)
        return [STAGE]

    async with watching(look, Output(Format.JSON, KeyEncoding.UTF8, quiet)):
        if not quiet:
            await enough.wait()


def test_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "LINE_INTERVAL_S", 0.0)
    anyio.run(_watch, False, 3)
    assert capsys.readouterr().err.splitlines()[:2] == [STAGE.line()] * 2
    anyio.run(_watch, True, 3)
    assert capsys.readouterr().err == ""


def test_bars_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "BAR_INTERVAL_S", 0.0)
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    anyio.run(_watch, False, 3)
    assert "stage 3: 12 of 40 tasks" in capsys.readouterr().err


def test_what_children_say_goes_to_the_file_and_what_we_say_does_not(capfd: pytest.CaptureFixture[str]) -> None:
    log = JavaLog.create()
    said = "import sys; sys.stderr.write('from Java')"
    try:
        with log.redirected():
            subprocess.run([sys.executable, "-c", said], check=True)
        sys.stderr.write("from us")
        assert log.path.read_text() == "from Java"
        assert capfd.readouterr().err == "from us"
    finally:
        log.remove()
    assert not log.path.exists()


def test_who_gives_up_while_java_starts_is_heard(capfd: pytest.CaptureFixture[str]) -> None:
    log = JavaLog.create()
    try:
        with log.redirected():
            log.restore()
            sys.stderr.write("not done after 1 s")
        assert capfd.readouterr().err == "not done after 1 s"
        sys.stderr.write("more")
        assert capfd.readouterr().err == "more"
    finally:
        log.remove()
