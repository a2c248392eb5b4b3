"""Each daemon starts, works a little, and stops with exit code 0, every time, on every kind of store.

A process that ended right after a request to a cloud store once aborted in four of ten runs (docs/adr/0002).
"""

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.daemons.daemon_process import Daemon, running
from tests.integration.store.servers import s3_server

SOAK_TURNS = 50


@contextlib.contextmanager
def _store(kind: str, directory: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield a store of this kind: the URL of a database in it, and the settings to open it."""
    if kind == "directory":
        yield f"file://{directory}/store/orders", {}
        return
    with s3_server("shale") as endpoint:
        keys = {"SHALE_STORE__ACCESS_KEY_ID": "shale", "SHALE_STORE__SECRET_ACCESS_KEY": "shale-local"}
        yield "s3://shale/orders", {"SHALE_STORE__ENDPOINT": endpoint, "SHALE_STORE__REGION": "us-east-1", **keys}


def _write(daemon: Daemon, turn: int) -> None:
    port = daemon.port("port")
    status = daemon.request("PUT", f"/v1/kv/turn{turn}", port=port, body=b"%d" % turn)[0]
    assert status == 204


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "turns"),
    [
        ("directory", 1),
        ("s3", 2),
        *(pytest.param(kind, SOAK_TURNS, marks=pytest.mark.soak) for kind in ("directory", "s3")),
    ],
)
def test_all_daemons_end_with_0(kind: str, turns: int, tmp_path: Path) -> None:
    """SIGTERM and SIGINT in turn; the writer makes the database that the others use."""
    with _store(kind, tmp_path) as (url, env):
        for turn in range(turns):
            number = (signal.SIGTERM, signal.SIGINT)[turn % 2]
            args = {
                "shale_writer": ("--port", "0"),
                "shale_compactor": ("--take-over",),
                "shale_compactor.worker": (),
                "shale_gc": (),
                "shale_reader": ("--port", "0"),
            }
            with contextlib.ExitStack() as stack:
                daemons = {}
                for module, options in args.items():
                    log = tmp_path / f"{module}{turn}"
                    daemon = running(module, "--url", url, *options, log=log, env=env, is_fresh=kind == "directory")
                    daemons[module] = stack.enter_context(daemon)
                for daemon in daemons.values():
                    daemon.wait_for("daemon.ready")
                _write(daemons["shale_writer"], turn)
                codes = {module: daemon.stop(number) for module, daemon in daemons.items()}
                logs = {module: daemon.log.read_text() for module, daemon in daemons.items() if codes[module]}
                assert set(codes.values()) == {0}, (codes, logs)
