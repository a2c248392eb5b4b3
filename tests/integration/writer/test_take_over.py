"""A writer that must not take over ends while another one runs, which goes on."""

from pathlib import Path

import pytest

from tests.integration.daemons.daemon_process import ENDED_S, running


@pytest.mark.slow
def test_a_writer_that_must_not_take_over_ends(tmp_path: Path) -> None:
    place = ("--url", f"file://{tmp_path}/store/orders", "--port", "0")
    with running("shale_writer", *place, log=tmp_path / "first") as first:
        port = first.port("port")
        with running("shale_writer", *place, "--no-take-over", log=tmp_path / "second") as second:
            assert second.process.wait(ENDED_S) == 75
            (failed,) = second.lines("daemon.failed")
            assert f"http://127.0.0.1:{port}" in failed["error"], failed
        assert first.request("PUT", "/v1/kv/a", port=port, body=b"1")[0] == 204
        assert first.stop() == 0
    with running("shale_writer", *place, "--no-take-over", log=tmp_path / "third") as third:
        assert third.request("GET", "/v1/kv/a", port=third.port("port"))[1] == b"1"
        assert third.stop() == 0
