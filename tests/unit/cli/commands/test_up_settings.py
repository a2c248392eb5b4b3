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
        assert found[role].arguments == [f"--set={each}" for each in expected], role


def test_secrets_are_variables_and_not_on_the_command_line() -> None:
    given = ('tokens.read=["r1", "r2"]', "tokens.admin=a1", "reader.tokens.read=r3")
    endpoint = "store.endpoint=http://user:password@127.0.0.1:1"
    found = daemon_settings([*given, endpoint, "writer.http.bearer_token=h1", "cpu_threads=1"])
    assert all(each.arguments == ["--set=cpu_threads=1"] for each in found.values())
    assert found["writer"].variables == {
        "SHALE_WRITER__TOKENS__READ": "r1,r2",
        "SHALE_WRITER__TOKENS__ADMIN": "a1",
        "SHALE_WRITER__STORE__ENDPOINT": "http://user:password@127.0.0.1:1",
        "SHALE_WRITER__HTTP__BEARER_TOKEN": "h1",
    }
    assert found["reader"].variables["SHALE_READER__TOKENS__READ"] == "r3"
    assert found["gc"].variables["SHALE_GC__TOKENS__ADMIN"] == "a1"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("resp.enabled", "--set resp.enabled: write NAME=VALUE"),
        ("resp.enable=true", "--set resp.enable: no daemon has this setting.*resp.enabled"),
        ("writer.compactor_options.poll_interval=1s", "no daemon has this setting"),
    ],
)
def test_what_no_daemon_knows_is_refused(given: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        daemon_settings([given])
