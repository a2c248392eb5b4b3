"""``shale compaction simulate``: options, files, plots and errors."""

import json
import sys
from pathlib import Path

import anyio
import pytest

import shale
from shale.compaction.policies.leveled import Leveled
from shale.compaction.policies.time_window import TimeWindow
from shale.env import Env
from shale.errors import InvalidRequestError
from shale.store.connect import open_store
from shale_cli.__main__ import main
from shale_cli.commands.compaction.simulated_plot import plot_target
from shale_cli.commands.compaction.simulated_policy import parse_policies
from shale_compactor.compactor import Compactor, CompactorOptions

SMALL = ("--duration", "2h", "--rows", "5000", "-o", "json")


def simulated(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    assert call(*arguments) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema_version"] == 1
    return answer["policies"]


def call(*arguments: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["shale", "compaction", "simulate", *SMALL, *arguments])
        return main()


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert call(*arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


def test_all_policies_side_by_side(capsys):
    found = simulated(capsys)
    assert [each["policy"] for each in found] == ["size_tiered", "leveled", "time_window"]
    assert all(each["write_amplification"] > 1 for each in found)
    assert all(each["left_l0"] < 8 and each["stall_s"] == 0 for each in found)
    assert len({each["written_bytes"] for each in found}) == 1


def test_one_policy_with_different_options(capsys):
    found = simulated(capsys, "--policy", "leveled", "--policy", "leveled:level_base_bytes=1GiB", "--overwrites", "0")
    assert [each["policy"] for each in found] == ["leveled", "leveled:level_base_bytes=1GiB"]
    assert found[1]["write_amplification"] != found[0]["write_amplification"]


def test_a_table_for_people(capsys):
    assert call("--policy", "leveled", "-o", "table") == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["POLICY", "WRITE_AMP", "SPACE_AMP"]
    assert line.split()[0] == "leveled"


def test_a_recorded_load(capsys, tmp_path: Path):
    file = tmp_path / "load.ndjson"
    file.write_text("".join(f'{{"at_s": {60 * n}, "bytes": 1000000, "distinct": 8000}}\n' for n in range(50)))
    (found,) = simulated(capsys, "--load", str(file), "--policy", "size_tiered", "--overwrites", "0")
    assert found["duration_s"] == 49 * 60
    assert found["written_bytes"] == 50_000_000
    assert found["flushed_bytes"] == pytest.approx(50_000_000, rel=0.02)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        pytest.param('{"at_s": 1}', "line 2: ", id="no size"),
        pytest.param('{"at_s": "NaN", "bytes": 1}', "line 2: ", id="no time"),
        pytest.param("{", "line 2: ", id="no JSON"),
        pytest.param('{"at_s": 2, "bytes": 0}', "must have bytes", id="empty"),
        pytest.param("", "needs two flushes", id="only one"),
    ],
)
def test_mistakes_in_a_recorded_load(capsys, tmp_path: Path, line, named):
    file = tmp_path / "load.ndjson"
    file.write_text(f'{{"at_s": 0, "bytes": 5}}\n{line}\n')
    assert named in refused(capsys, "--load", str(file))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        pytest.param(("--policy", "tiered"), "size_tiered", id="no such policy"),
        pytest.param(("--policy", "leveled:window=1h"), "option of time_window", id="an option of another policy"),
        pytest.param(("--policy", "leveled:fanout=3"), "fanout", id="no such option"),
        pytest.param(("--policy", "leveled:fanout"), "OPTION=VALUE", id="no value"),
        pytest.param(("--ttl", "7d"), "max_windows 32 of 3600 s", id="too few windows for the lifetime"),
        pytest.param(("--rate", "fast"), "--rate", id="no rate"),
        pytest.param(("--keys", "random"), "uniform", id="no such distribution"),
        pytest.param(("--overwrites", "2"), "overwrite_share", id="more than all"),
        pytest.param(("--duration", "10s"), "not one L0", id="too short"),
        pytest.param(("--load", "/nowhere"), "/nowhere", id="no such file"),
        pytest.param(("--plot", "a.pdf"), ".png or .html", id="cannot draw that"),
        pytest.param(("--plot", "/nowhere/a.png"), "does not exist", id="cannot draw there"),
    ],
)
def test_mistakes_are_told_before_anything_is_simulated(capsys, arguments, named):
    said = refused(capsys, *arguments)
    assert named in said
    assert len(said.splitlines()) == 1


def test_policies_take_the_lifetime_of_the_load():
    named = parse_policies(["leveled:level_size_multiplier=8", "time_window:window=2h"], "1d")
    assert [each.policy for each in named] == [
        Leveled(level_size_multiplier=8.0),
        TimeWindow(window_s=7200.0, default_ttl_s=86400.0),
    ]


@pytest.mark.slow
def test_drawings(capsys, tmp_path: Path):
    png, page, again = tmp_path / "a.png", tmp_path / "a.html", tmp_path / "b.html"
    for file in (png, page, again):
        simulated(capsys, "--policy", "leveled", "--plot", str(file))
    assert png.read_bytes().startswith(b"\x89PNG")
    text = page.read_text()
    assert "<svg" in text
    assert "<td>leveled</td>" in text
    assert "http-equiv" not in text
    assert "src=" not in text, "the page needs nothing else"
    assert text == again.read_text(), "the same seed draws the same"


def test_without_matplotlib_the_command_that_installs_it_is_named(monkeypatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InvalidRequestError, match=r"pip install 'shale\[plots\]'"):
        plot_target(str(tmp_path / "a.png"))


def test_the_history_of_a_database(capsys, tmp_path: Path):
    """Eight flushes; the compactor has removed half of the L0s, and old manifests still list them."""
    url = f"file://{tmp_path}/db"

    async def write() -> int:
        sizes = 0
        async with shale.Db.open(url, flush_interval=0) as db:
            for number in range(8):
                if number == 4:
                    await compact(tmp_path)
                async with db.batch() as batch:
                    for key in range(200):
                        batch.put(b"%d/%d" % (number, key), b"x" * 100)
                await db.flush("memtable")
                sizes += db.status.manifest.tree.l0[0].sst.estimated_size_bytes
        return sizes

    async def compact(folder: Path) -> None:
        options = CompactorOptions(take_over=True)
        compactor = Compactor(open_store(f"file://{folder}"), "db", Env.system(), options)
        await compactor.start()
        await compactor.coordinator.run_round()
        for job in await compactor.worker.claim():
            await compactor.worker.execute(job)
        await compactor.coordinator.run_round()
        assert not compactor.coordinator.manifest.value.tree.l0

    flushed = anyio.run(write)
    found = simulated(capsys, "--from-database", "-u", url, "--overwrites", "0", "--policy", "leveled")
    assert found[0]["written_bytes"] == flushed
    assert call("--from-database", "-u", f"file://{tmp_path}/nothing") == 3
    assert "give only one" in refused(capsys, "--from-database", "-u", url, "--load", "x")
