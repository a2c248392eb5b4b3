"""``shale compaction`` on a database in memory: output and exit codes."""

import json
import sys
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from shale.compaction.entries import with_entries
from shale.compaction.history import CompactionLifecycle
from shale.compaction.status import compaction_info
from shale.env import Env
from shale.errors import UnavailableError
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import Versioned
from shale.store.connect import connect
from shale.types import Compaction, CompactionContext, Compactions, KeyRange, Seq, Subcompaction, WorkerClaim
from shale_cli.__main__ import main
from shale_cli.commands.compaction.progress import (
    LINE_INTERVAL_S,
    CompactionProgressLines,
    show_progress,
    wait_through_outages,
)
from shale_cli.commands.compaction.request import build_request
from shale_cli.commands.compaction.rows import brief
from shale_cli.framework.output.writer import Format, KeyEncoding, Output
from tests.unit.compactor.values import S, entry, manifest, spec, sst, tree, ulid

URL = "memory:///orders"
MS = 1_700_000_000_000
STATE = manifest(tree((4, 3, 2, 1), (3, 2, 1)), log=tree((), (8, 6)))


class Orders:
    """The database; ``edit`` writes as a coordinator or a worker."""

    def __init__(self) -> None:
        env = Env.system()
        store = connect("memory:///", env)
        self.manifests = ManifestStore(store, "orders", env)
        self.compactions = CompactionsStore(store, "orders", env)

    async def _create(self) -> None:
        await self.manifests.create_new(STATE)
        await self.compactions.load_or_create()

    def create(self) -> "Orders":
        anyio.run(self._create)
        return self

    async def _edit(self, *entries: Compaction) -> None:
        def change(current: Versioned[Compactions]) -> Compactions:
            return with_entries(current.value, entries)

        await (await self.compactions.load()).apply(change)

    def edit(self, *entries: Compaction) -> None:
        anyio.run(self._edit, *entries)

    def stored(self) -> tuple[Compaction, ...]:
        async def read() -> tuple[Compaction, ...]:
            return (await self.compactions.read_latest()).value.entries

        return anyio.run(read)


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> Orders:
    monkeypatch.setattr("shale.store.connect.memory_stores", {})
    return Orders().create()


@pytest.fixture
def shale(capsys: pytest.CaptureFixture[str]):
    def run(*arguments: str, code: int = 0) -> tuple[Any, str]:
        ended = main([*arguments, "-u", URL])
        told = capsys.readouterr()
        assert ended == code, told.err
        return (json.loads(told.out) if told.out.startswith("{") else told.out), told.err

    return run


RUNNING = entry(
    MS,
    spec(runs=(3, 2, 1), to=1),
    S.RUNNING,
    worker=WorkerClaim(worker_id="01HF7YAT00000000000000000W", last_heartbeat_ms=MS + 5000),
    ctx=CompactionContext(
        subcompactions=(Subcompaction(range=KeyRange(), output_ssts=(sst(MS + 9, 120, (b"a", b"k")),)),),
        retention_min_seq=Seq(0),
    ),
)
TIMES = ("started_at", "completed_at", "estimated_completion", "heartbeat_age")


def without_times(value: dict[str, Any]) -> dict[str, Any]:
    """Remove times that the store's clock sets; the rest is equal in every run."""
    return {
        name: without_times(item) if isinstance(item, dict) else item
        for name, item in value.items()
        if not name.startswith(TIMES)
    }


GOLDEN = {
    "id": "01HF7YAT000000000000000000",
    "status": "running",
    "phase": "writing",
    "spec": "[SR3, SR2, SR1] -> SR1",
    "segment_b64": "",
    "source_ssts": [],
    "source_srs": [3, 2, 1],
    "target": 1,
    "request": {
        "Spec": {
            "Tiered": {
                "segment": [],
                "sources": [{"SortedRun": 3}, {"SortedRun": 2}, {"SortedRun": 1}],
                "destination": 1,
            }
        }
    },
    "progress": {
        "input_ssts_processed": 0,
        "total_input_ssts": 3,
        "output_ssts_written": 1,
        "output_bytes": 120,
        "bytes_processed": 120,
        "total_bytes": 300,
        "completion_percentage": 40.0,
    },
    "outputs": [{"id": "01HF7YAT090000000000000000", "bytes": 120}],
    "created_at": "2023-11-14T22:13:20.000Z",
    "created_at_ms": 1_700_000_000_000,
    "attempts": 1,
    "kind": None,
    "retry_of": None,
    "worker": {
        "id": "01HF7YAT00000000000000000W",
        "last_heartbeat": "2023-11-14T22:13:25.000Z",
        "last_heartbeat_ms": 1_700_000_005_000,
    },
    "error_message": None,
}
NAMES = {*GOLDEN, "started_at", "started_at_ms", "completed_at", "completed_at_ms"}


def test_the_json_of_status_and_its_other_names(orders, shale):
    orders.edit(RUNNING)
    id_ = str(RUNNING.id)
    for arguments in (
        ["compaction", "status", id_],
        ["compaction", "status", "--id", id_],
        ["read-compaction", "-i", id_],
    ):
        told, _ = shale(*arguments)
        assert told.pop("schema_version") == 1
        assert set(told) == NAMES
        assert without_times(told) == GOLDEN
    past, _ = shale("read-compaction", "-i", id_, "--compactions-id", "2")
    assert (past["phase"], past["attempts"]) == ("writing", 0)
    assert "does not know it" in shale("read-compaction", "-i", id_, "--compactions-id", "1", code=3)[1]


def test_the_json_of_list_submit_wait_and_cancel(orders, shale):
    orders.edit(RUNNING)
    told, _ = shale("compaction", "list")
    assert set(told) == {"schema_version", "compactions"}
    assert [without_times(each) for each in told["compactions"]] == [GOLDEN]

    told, _ = shale("compaction", "submit", "--segment", "log", "--full")
    (made,) = told["compactions"]
    assert set(made) == NAMES
    assert (made["phase"], made["segment_b64"], made["target"]) == ("submitted", "bG9n", 6)

    told, _ = shale("compaction", "cancel", made["id"], "--confirm", "0s")
    assert set(told) == {"schema_version", *NAMES}
    assert (told["phase"], told["error_message"]) == ("failed", "cancelled")

    told, err = shale("compaction", "wait", made["id"], code=4)
    assert set(told["compactions"][0]) == NAMES
    assert err.splitlines()[-1] == f"shale: compaction {made['id']}: cancelled"


def test_older_versions_are_listed_on_request(orders, shale):
    orders.edit(entry(MS, spec(runs=(3,), to=3), S.COMPLETED))
    stored = orders.compactions
    anyio.run(stored.commit, 2, Compactions(entries=()))
    assert shale("compaction", "list")[0]["compactions"] == []
    (told,) = shale("compaction", "list", "--all")[0]["compactions"]
    assert told["phase"] == "completed"


def test_tables_are_for_people(orders, shale):
    orders.edit(RUNNING)
    table, _ = shale("compaction", "list", "-o", "table")
    header, line = table.splitlines()
    assert header.split() == ["ID", "PHASE", "PROGRESS", "CREATED", "SPEC", "ERROR"]
    assert "writing  40.0 %" in " ".join(line.split()).replace("writing 40", "writing  40")
    told, _ = shale("compaction", "status", str(RUNNING.id), "-o", "table")
    rows = dict(row.split(maxsplit=1) for row in told.splitlines())
    assert rows["bytes"] == "120 B of 300 B"
    assert rows["inputs"] == "0 of 3 SSTs done"
    assert rows["worker"].startswith("01HF7YAT00000000000000000W  heartbeat ")


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["--sources", f"{ulid(4)},{ulid(3)}", "--destination", "9"], "V7"),
        (["--sources", "SR2,SR1"], "V12"),
        (["--sources", f"{ulid(4)}", "--destination", "2"], "V5"),
        (["--request", '{"Spec":{"sources":[{"SortedRun":3},{"SortedRun":1}],"destination":1}}'], "V10"),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_what_would_lose_rows_is_refused(orders, shale, arguments, rule, dry_run):
    orders.edit(entry(MS, spec(runs=(1,), to=1)))
    out, err = shale("compaction", "submit", *arguments, *(["--dry-run"] if dry_run else []), code=2)
    assert out == ""
    assert err.startswith(f"shale: {rule}: [")
    assert len(orders.stored()) == 1


def test_a_dry_run_can_be_given_back_as_a_request(orders, shale):
    told, remark = shale("compaction", "submit", "--sources", "SR1,SR2,SR3", "--dry-run")
    assert "nothing was submitted" in remark
    assert orders.stored() == ()
    (planned,) = told["compactions"]
    assert planned["spec"] == "[SR3, SR2, SR1] -> SR1"
    again, _ = shale("submit-compaction", "--request", json.dumps(planned["request"]), "--scheduler", "size-tiered")
    assert [each["spec"] for each in again["compactions"]] == [planned["spec"]]
    (stored,) = orders.stored()
    assert stored.spec == spec(runs=(3, 2, 1), to=1)


def test_submit_and_wait_in_one(orders, shale):
    err = shale("compaction", "submit", "--full", "--wait", "--timeout", "30ms", code=75)[1]
    assert "timed out after 0.03 s" in err
    assert len(orders.stored()) == 2


def test_how_waiting_ends(orders, shale):
    orders.edit(entry(MS, spec(runs=(3,), to=3), S.COMPLETED), entry(MS + 1, spec(runs=(2,), to=2)))
    assert shale("compaction", "wait", str(ulid(MS)))[0]["compactions"][0]["phase"] == "completed"
    assert "timed out" in shale("compaction", "wait", str(ulid(MS + 1)), "--timeout", "30ms", code=75)[1]
    assert "none of the stored versions" in shale("compaction", "wait", str(ulid(5)), code=3)[1]
    assert "not the id of a compaction" in shale("compaction", "wait", "5", code=2)[1]


def test_how_cancelling_ends(orders, shale):
    orders.edit(entry(MS, spec(runs=(3,), to=3), S.COMPACTED))
    err = shale("compaction", "cancel", str(ulid(MS)), code=4)[1]
    assert err == f"shale: {URL}: compaction {ulid(MS)} is compacted: too late to cancel it\n"
    shale("compaction", "cancel", str(ulid(5)), code=3)
    shale("compaction", "cancel", str(ulid(MS)), "--confirm", "soon", code=2)


def test_flat_names_of_files(orders, shale):
    orders.edit(RUNNING)
    told, _ = shale("list-compactions", "-s", "2", "-e", "3")
    (version,) = told["versions"]
    assert (version["id"], version["compactions"]["entries"][0]["id"]) == (2, str(RUNNING.id)), "as SlateDB's tool does"
    told, _ = shale("read-compactions", "-i", "2", "-o", "table")
    assert told["compactions"]["entries"][0]["id"] == str(RUNNING.id)
    assert shale("read-compactions")[0]["id"] == 2


def test_where_no_compactor_ever_was(orders, shale):
    shale("compaction", "status", str(ulid(5)), "--path", "elsewhere", code=2)
    assert "--full, --sources and --request" in shale("compaction", "submit", code=2)[1]
    assert main(["compaction", "list", "-u", "memory:///elsewhere"]) == 3
    assert main(["compaction", "submit", "--full", "-u", "memory:///elsewhere"]) == 3


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"full": True, "sources": "SR1"},
        {"full": True, "destination": 1},
        {"full": True, "drain": True},
        {"request": '"Full"', "segment": "log"},
        {"request": "{"},
        {"sources": "SR1", "drain": True, "destination": 1},
        {"sources": "SR1;SR2"},
    ],
)
def test_options_that_contradict_each_other(options):
    from shale.errors import InvalidRequestError

    with pytest.raises(InvalidRequestError):
        build_request(Output(Format.JSON, KeyEncoding.UTF8), **options)


def test_a_line_for_every_phase_and_every_ten_seconds(capsys):
    now = [0.0]
    lines = CompactionProgressLines(Output(Format.JSON, KeyEncoding.UTF8), lambda: now[0])
    writing = compaction_info(RUNNING, inputs=None, life=CompactionLifecycle(), now_ms=MS)
    reading = compaction_info(replace(RUNNING, ctx=None), inputs=None, life=CompactionLifecycle(), now_ms=MS)
    for seconds, info in ((0, reading), (1, reading), (2, writing), (3, writing), (2 + LINE_INTERVAL_S, writing)):
        now[0] = seconds
        lines(info)
    told = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in told] == ["reading", "writing", "writing"]
    assert not any("compactor running" in line for line in told)


def test_who_waits_in_vain_is_asked_for_a_compactor(capsys):
    now = [0.0]
    lines = CompactionProgressLines(Output(Format.JSON, KeyEncoding.UTF8), lambda: now[0])
    submitted = compaction_info(entry(MS, spec(runs=(3,), to=3)), inputs=None, life=CompactionLifecycle(), now_ms=MS)
    for now[0] in (0, 10, 20):
        lines(submitted)
    told = capsys.readouterr().err.splitlines()
    assert ["is a compactor running?" in line for line in told] == [False, False, True]


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_in_eighty_columns_there_is_room_for_bar_and_end_and_question(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", Terminal())
    now = [0.0]
    clock: Any = SimpleNamespace(monotonic_s=lambda: now[0])
    submitted = compaction_info(entry(MS, spec(runs=(3,), to=3)), inputs=None, life=CompactionLifecycle(), now_ms=MS)
    at_work = replace(
        compaction_info(RUNNING, inputs=None, life=CompactionLifecycle(), now_ms=MS), estimated_completion_ms=MS
    )
    with show_progress(Output(Format.TABLE, KeyEncoding.UTF8), clock) as on_progress:
        on_progress(submitted)
        now[0] = 20.0
        on_progress(submitted)
        on_progress(at_work)
    told: Any = sys.stderr
    assert f"{submitted.id}: not scheduled yet: is a compactor running?" in told.getvalue()
    last = next(line for line in reversed(told.getvalue().splitlines()) if "writing" in line)
    assert "━━" in last
    assert f"{at_work.id}" in last
    assert "ends 22:13:20Z" in last


class AwayInBetween:
    """A client of the administrator whose store is unavailable during some calls."""

    def __init__(self, *calls: str) -> None:
        self.calls = list(calls)

    async def wait_for_compaction(self, compaction_id: str, on_progress):
        info = compaction_info(RUNNING, inputs=None, life=CompactionLifecycle(), now_ms=MS)
        for step in self.calls.pop(0).split():
            if step == "away":
                raise UnavailableError("no answer")
            on_progress(info)
        return info


def test_a_store_that_goes_away_does_not_end_the_waiting(capsys):
    def wait(*calls: str) -> list[str]:
        seen: list[str] = []
        output = Output(Format.JSON, KeyEncoding.UTF8)

        async def patiently() -> None:
            front: Any = AwayInBetween(*calls)
            await wait_through_outages(front, "01J", lambda info: seen.append(info.phase.value), output, pause_s=0)

        anyio.run(patiently)
        return seen

    assert wait("look away", "away", "look") == ["writing", "writing"]
    assert capsys.readouterr().err == "01J: no answer; still waiting\n" * 2
    with pytest.raises(UnavailableError):
        wait("away", "look")


def test_a_list_counts_l0s():
    assert brief(spec((4, 3, 2), (9,), to=9)) == "[3 L0s, SR9] -> SR9"
    assert brief(spec(runs=(3, 2), to=2)) == "[SR3, SR2] -> SR2"
