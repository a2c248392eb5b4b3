"""Do what a new user does, with the built wheel in a fresh environment: ``python -m tests.checks.first_hour [WHEEL]``.

Each step is a program or a command as a user writes it, and the words of the answer that must come.  ``--minutes`` also
runs one program that writes for so long, with nothing else running, and reports how large its directory became.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.checks.wheels import UV
from tests.paths import REPOSITORY
from tests.ports import free_port

TIMEOUT_S = 60.0
SHOWN = 800
"""Characters of an answer that is not as it must be."""
HIDDEN = ("PYTHONPATH", "VIRTUAL_ENV", "SHALE_KERNELS")
PRESET = """
import asyncio, os, sys, pathlib
import shale, shale.sync
folder = pathlib.Path.cwd()
"""


@dataclass(frozen=True, slots=True)
class Step:
    """A program, which may await, and the words that its output must have."""

    name: str
    code: str
    expected: tuple[str, ...]


STEPS = (
    Step(
        "L0 fills without a daemon: the program goes on",
        """
async with shale.Db.open(folder / "embedded", l0_sst_size_bytes="64KiB") as db:
    for number in range(100_000):
        await db.put(b"%012d" % number, b"v" * 100)
async with shale.DbReader.open(folder / "embedded") as reader:
    print("rows", len([row async for row in reader.scan()]))
""",
        ("rows 100000",),
    ),
    Step(
        "without a compactor: a typed error that says what to do",
        """
options = {"l0_sst_size_bytes": "64KiB", "max_unflushed_bytes": "1MiB", "compactor": False, "stall_timeout": 1}
async with shale.Db.open(folder / "stalled", **options) as db:
    for number in range(100_000):
        await db.put(b"%012d" % number, os.urandom(100))
""",
        ("WriteStalled", "shale compactor", "compactor=True"),
    ),
    Step(
        "a dead endpoint is answered",
        """
config = {"endpoint": "http://127.0.0.1:1", "access_key_id": "a", "secret_access_key": "b"}
options = shale.StoreOptions(config=config)
await shale.Db.open("s3://bucket/orders", store_options=options)
""",
        ("127.0.0.1:1",),
    ),
    Step(
        "the environment of the daemons is read by the library",
        """
os.environ["SHALE_STORE__ENDPOINT"] = "http://127.0.0.1:1"
os.environ["SHALE_STORE__ACCESS_KEY_ID"] = os.environ["SHALE_STORE__SECRET_ACCESS_KEY"] = "a"
await shale.DbReader.open("s3://bucket/orders")
""",
        ("127.0.0.1:1",),
    ),
    Step(
        "a second writer: the first one learns what to do",
        """
first = await shale.Db.open(folder / "fenced")
second = await shale.Db.open(folder / "fenced")
try:
    await (await first.put(b"a", b"1")).durable()
finally:
    await second.close()
""",
        ("FencedError", "one writer", "DbReader"),
    ),
    Step(
        "writes are awaited, those of a batch are not, and say so",
        """
async with shale.Db.open(folder / "kinds") as db:
    async with db.transaction() as tx:
        await tx.put(b"a", b"1")
    async with db.batch() as batch:
        batch.put(b"b", b"2")
    await db.put(b"c", b"3")
    print(await db.get_many([b"a", b"b", b"c"]))
    await shale.WriteBatch().put(b"d", b"4")
""",
        ("[b'1', b'2', b'3']", "only add to it, and need no await"),
    ),
    Step(
        "the directory above a database stays empty",
        """
async with shale.Db.open(f"file://{folder}/alone/db"):
    print("files", sorted(os.listdir(folder / "alone")))
""",
        ("files ['db']",),
    ),
    Step("a missing database", 'await shale.DbReader.open(folder / "embeded")', ("did you mean embedded?",)),
    Step("a misspelt option", 'shale.Db.open(folder / "x", flush_intervall=1)', ("did you mean flush_interval?",)),
    Step("a forgotten await", 'shale.Db.open(folder / "x").put(b"a", b"1")', ("is not open yet", "async with")),
    Step("`with` for `async with`", 'with shale.Db.open(folder / "x"): pass', ("async with", "shale.sync")),
    Step(
        "a clone below another database, by one URL",
        """
async with shale.Db.open(folder / "source") as db:
    await db.put(b"a", b"1")
async with shale.Admin("orders/clone", store=folder) as admin:
    await admin.clones.create("source")
await shale.DbReader.open(folder / "orders" / "clone")
""",
        ("is a clone", "--store", "--path orders/clone"),
    ),
    Step(
        "shale.sync beside a running loop, and repr",
        """
with shale.sync.Db.open(folder / "notebook") as db:
    db.put(b"a", b"1")
    print(db.get(b"a"), repr(db))
""",
        ("b'1'", "notebook"),
    ),
    Step(
        "an embedding program imports what it uses",
        """
async with shale.Db.open(folder / "light") as db:
    await db.put(b"a", b"1")
heavy = {"typer", "rich", "starlette", "uvicorn", "pydantic", "prometheus_client"} & set(sys.modules)
print("heavy", sorted(heavy))
""",
        ("heavy []",),
    ),
)

LONG_PROGRAM = """
import random, time

def size(folder):
    return sum(entry.stat().st_size for entry in folder.rglob("*") if entry.exists() and entry.is_file())

rng, live, slowest, largest, rows = random.Random(1), set(), 0.0, 0.0, 0
async with shale.Db.open(folder / "minutes", l0_sst_size_bytes="1MiB") as db:
    begun = time.monotonic()
    while time.monotonic() - begun < SECONDS:
        for _ in range(25_000):
            number, start = rng.randrange(2_000_000), time.monotonic()
            await db.put(b"%012d" % number, rng.randbytes(100))
            slowest, rows = max(slowest, time.monotonic() - start), rows + 1
            live.add(number)
        if len(live) >= 500_000:
            try:
                largest = max(largest, size(folder / "minutes") / (112 * len(live)))
            except FileNotFoundError:
                pass  # the collector was at work
print(f"rows {rows}, slowest put {slowest * 1000:.0f} ms, directory at most {largest:.2f} times its live data")
"""


class FirstHourError(Exception):
    """An answer is not what a new user needs."""


class Installed:
    """A fresh environment with the wheel, and a folder to work in."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self._bin = folder / "venv" / "bin"
        self.run("python3", "-m", "venv", str(folder / "venv"))
        self.run(str(self._bin / "pip"), "install", "--quiet", str(wheel))

    def run(self, *command: str, timeout_s: float = TIMEOUT_S) -> str:
        """Run a command; return all that it printed, and its exit code."""
        done = subprocess.run(
            command, cwd=self.folder, env=_environment(), check=False, timeout=timeout_s,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        return f"{done.stdout}\nexit code {done.returncode}"

    def program(self, code: str, timeout_s: float = TIMEOUT_S) -> str:
        """Run lines of Python that may await."""
        body = "".join(f"    {line}\n" for line in code.strip().splitlines())
        script = f"{PRESET}\nasync def main():\n{body}\nasyncio.run(main())\n"
        return self.run(str(self._bin / "python"), "-c", script, timeout_s=timeout_s)

    def shale(self, *arguments: str) -> str:
        """Run a command of Shale."""
        return self.run(str(self._bin / "shale"), *arguments)

    @contextmanager
    def up(self, url: str) -> Iterator[tuple["subprocess.Popen[str]", dict[str, dict[str, str]], int]]:
        """Run the four daemons on free ports, with RESP; yield them and the port of RESP."""
        port = free_port()
        command = [str(self._bin / "shale"), "up", "--port", "0", "--admin-port", "0", "-o", "jsonl", "-u", url]
        command += ["--set", "resp.enabled=true", "--set", f"writer.resp.port={port}", "--set", "reader.resp.port=0"]
        with (
            (self.folder / "up.log").open("w") as log,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, env=_environment(), cwd=self.folder, text=True
            ) as child,
        ):
            assert child.stdout is not None
            try:
                started = [json.loads(line) for _, line in zip(range(4), child.stdout, strict=False)]
                yield child, {line["process"]: line for line in started}, port
            finally:
                child.send_signal(signal.SIGTERM)
                child.wait(TIMEOUT_S)


def require(output: str, *expected: str) -> None:
    """Require words in an output.

    Raises:
        FirstHourError: some are missing.
    """
    if missing := [words for words in expected if words not in output]:
        raise FirstHourError(f"the answer has no {', no '.join(map(repr, missing))}:\n{output[-SHOWN:]}")


def beside_daemons(installed: Installed) -> None:
    """Write, increment, look at the console and ask for the API while the four daemons run."""
    url = f"file://{installed.folder}/daemons"
    with installed.up(url) as (child, processes, port):
        require(installed.shale("kv", "put", "k", "v", "-u", url), "writing through the writer", "exit code 0")
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as client:
            client.sendall(b"INCR n\r\nSETEX t 60 v\r\nTTL t\r\nTYPE n\r\nUNLINK t\r\nDBSIZE\r\nQUIT\r\n")
            answers = b"".join(iter(lambda: client.recv(65536), b"")).decode()
        require(answers.replace("\r\n", " "), ":1 +OK :60 +string :1 :2 +OK")
        page = installed.run("curl", "-s", f"{processes['writer']['admin']}/")
        require(page, "<html", "</html>")
        schema = installed.run("curl", "-s", f"{processes['writer']['data']}/openapi.json")
        require(schema, '"operationId"', '"servers"')
        if '"items":false' in schema.replace(" ", ""):
            raise FirstHourError("generators of clients do not understand `items: false` in /openapi.json")
        if child.poll() is not None:
            raise FirstHourError("a command has ended the daemons: " + (installed.folder / "up.log").read_text())


def flipped_byte(installed: Installed) -> None:
    """Verify a database in which one byte of a data block is wrong."""
    url = f"file://{installed.folder}/flipped"
    installed.program(
        'async with shale.Db.open(folder / "flipped", gc=False, compactor=False) as db:\n'
        '    for number in range(20_000): await db.put(b"%06d" % number, os.urandom(50))\n'
        '    await db.flush("memtable")'
    )
    require(installed.shale("verify", "-u", url), "exit code 0")
    sst = max((installed.folder / "flipped" / "compacted").iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(sst.read_bytes())
    data[len(data) // 3] ^= 1
    sst.write_bytes(data)
    answer = installed.shale("verify", "-u", url)
    require(answer, sst.stem, "checksum")
    if "exit code 0" in answer:
        raise FirstHourError(f"a flipped byte was not found:\n{answer}")


def columns(installed: Installed) -> None:
    """Import a CSV file with columns of its own."""
    url = f"file://{installed.folder}/csv"
    (installed.folder / "people.csv").write_text("id,name\n1,Ada\n2,Grace\n")
    imported = installed.shale("kv", "import", "people.csv", "--key", "id", "--value", "name", "-u", url)
    require(imported, "exit code 0")
    require(installed.shale("kv", "get", "2", "--raw", "-u", url), "Grace")


def build() -> Path:
    """Build the wheel of this machine."""
    folder = REPOSITORY / ".shale" / "first-hour"
    subprocess.run([UV, "build", "--quiet", "--wheel", "-o", str(folder)], cwd=REPOSITORY, check=True)
    return max(folder.glob("*.whl"), key=lambda path: path.stat().st_mtime)


def check(installed: Installed, minutes: float) -> int:
    """Run all steps; return how many failed."""
    checks = [(step.name, lambda step=step: require(installed.program(step.code), *step.expected)) for step in STEPS]
    checks += [
        ("commands, Redis, console and API beside the daemons", lambda: beside_daemons(installed)),
        ("verify finds a flipped byte", lambda: flipped_byte(installed)),
        ("import of columns", lambda: columns(installed)),
    ]
    failed = 0
    for name, run in checks:
        start_s = time.monotonic()
        try:
            run()
        except (FirstHourError, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"FAILED {name}: {error}", flush=True)
        else:
            print(f"ok     {name} ({time.monotonic() - start_s:.1f} s)", flush=True)
    if minutes:
        code = LONG_PROGRAM.replace("SECONDS", str(60 * minutes))
        print(installed.program(code, timeout_s=60 * minutes + TIMEOUT_S), flush=True)
    return failed


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in HIDDEN}
    return {name: value for name, value in kept.items() if not name.startswith("SHALE_")}


def main() -> None:
    """Check; exit with an error if a step failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.checks.first_hour")
    parser.add_argument("wheel", nargs="?", type=Path, help="default: the wheel is built")
    parser.add_argument("--minutes", type=float, default=0.0, help="also write for so long")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        installed = Installed(Path(folder), (arguments.wheel or build()).resolve())
        if failed := check(installed, arguments.minutes):
            raise SystemExit(f"first hour: {failed} steps failed")


if __name__ == "__main__":
    main()
