"""``shale up --set``: which daemon gets which setting."""

import pytest

from shale.errors import InvalidRequestError
from shale_cli.commands.up.settings import daemon_settings


@pytest.mark.parametrize(
    ("given", "writer", "compactor", "reader"),
    [
        pytest.param(["log.level=debug"], ["log.level=debug"], ["log.level=debug"], ["log.level=debug"], id="all"),
        pytest.param(
            ["resp.enabled=true"], ["resp.enabled=true"], [], ["resp.enabled=true", "resp.port=6380"], id="two ports"
        ),
        pytest.param(
            ["resp.enabled=true", "resp.port=7000"],
            ["resp.enabled=true", "resp.port=7000"],
            [],
            ["resp.enabled=true", "resp.port=7001"],
            id="two chosen ports",
        ),
        pytest.param(
            ["resp.port=0", "reader.resp.port=9"], ["resp.port=0"], [], ["resp.port=9"], id="a port of its own"
        ),
        pytest.param(["writer.cpu_threads=1"], ["cpu_threads=1"], [], [], id="one"),
        pytest.param(["compactor_options.poll_interval=1s"], [], ["compactor_options.poll_interval=1s"], [], id="its"),
        pytest.param(["log.level=a=b"], ["log.level=a=b"], ["log.level=a=b"], ["log.level=a=b"], id="equals signs"),
    ],
)
def test_a_setting_goes_to_the_daemons_that_have_it(
    given: list[str], writer: list[str], compactor: list[str], reader: list[str]
) -> None:
    found = daemon_settings(given)
    assert list(found) == ["writer", "compactor", "gc", "reader"]
    for role, expected in (("writer", writer), ("compactor", compactor), ("reader", reader)):
        assert found[role] == [f"--set={each}" for each in expected], role


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("resp.enabled", "--set resp.enabled: write NAME=VALUE"),
        ("resp.enable=true", "--set resp.enable: no daemon has this setting.*resp.enabled"),
        ("writer.compactor_options.poll_interval=1s", "no daemon has this setting"),
        ('tokens.read=["planted"]', "--set tokens.read: other users can read a secret"),
        ("writer.http.bearer_token=planted", "--set http.bearer_token: other users can read a secret"),
        ("store.endpoint=http://planted:planted@host", "--set store.endpoint: other users can read a secret"),
    ],
)
def test_what_no_daemon_knows_or_all_users_would_see_is_refused(given: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as raised:
        daemon_settings([given])
    assert "planted" not in str(raised.value)
