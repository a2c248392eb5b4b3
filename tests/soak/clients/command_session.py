"""Reads by the command line: every command is a process of its own."""

import base64
import json
import subprocess
import sys
from typing import Any

from tests.soak.clients.session import ClientSession, Result, Shared
from tests.soak.history.values import elements_in, name_in

LIMIT_S, EXTRA_PAUSE_S = 60.0, 4.0


class CommandSession(ClientSession):
    """``shale kv get`` and ``shale kv scan``."""

    def __init__(self, shared: Shared, name: str) -> None:
        super().__init__(shared, name, "cli")

    def act(self) -> bool:
        """See ``ClientSession``."""
        self.shared.stop.wait(EXTRA_PAUSE_S)
        chosen = self.rng.choice(("row", "lists", "group"))
        if chosen == "row":
            key = self.register()
            return self.record("read", key, None, lambda: self._row(key)).outcome == "ok"
        group = self.group() if chosen == "group" else self.list_keys()[0].rpartition("/")[0] + "/"
        function: Any = "scan" if chosen == "group" else "txn"
        return self.record(function, group, None, lambda: self._rows(group, chosen)).outcome == "ok"

    def _row(self, key: str) -> Result:
        code, text = self._run("kv", "get", key, "-o", "json")
        if code == 3:
            return Result("ok", None, self._instance)
        if code:
            return Result("fail", None, self._instance)
        return Result("ok", name_in(_bytes(json.loads(text), "value")), self._instance)

    def _rows(self, prefix: str, chosen: str) -> Result:
        code, text = self._run("kv", "scan", "--prefix", prefix, "-o", "jsonl")
        if code:
            return Result("fail", None, self._instance)
        items = [json.loads(line) for line in text.splitlines()]
        rows = {_bytes(item, "key").decode(): _bytes(item, "value") for item in items}
        if chosen == "group":
            return Result("ok", {key: name_in(value) for key, value in rows.items()}, self._instance)
        return Result("ok", [["r", key, elements_in(value)] for key, value in rows.items()], self._instance)

    @property
    def _instance(self) -> str:
        return self.next_name()

    def _run(self, *words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "shale_cli", *words, "-u", self.shared.url]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            return -1, ""
        if done.returncode not in (0, 3):
            print(f"{self._instance}: {' '.join(words)}: {done.returncode} {done.stderr[-300:]}", flush=True)
        return done.returncode, done.stdout


def _bytes(item: dict[str, Any], name: str) -> bytes:
    return base64.b64decode(item[f"{name}_b64"])
