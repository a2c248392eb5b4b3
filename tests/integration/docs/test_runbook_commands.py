"""What runbooks run in a pod works with the settings of the rendered chart, on a database with a checkpoint."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.integration.docs.page_shell import PageShell
from tests.integration.store.servers import s3_server
from tests.unit.docs.runbook_pages import PAGES, kubectl_lines, render

OTHER = re.compile(
    r"healthcheck|debug bundle|compaction (?:status|cancel|wait|retry)|cas |python -c|manifest (?:show|diff) 41"
)
"""What needs a running daemon, a failed job, a transactional store, or 47 versions of the manifest."""
FIRST = ("checkpoint create", "clone create")
LAST = ("checkpoint delete", "gc run")


def pod_commands() -> list[str]:
    """Return the different commands of all pages, in an order in which each finds what it needs."""
    lines = {" ".join(line.inner) for page in PAGES for line in kubectl_lines(page) if line.inner}
    return sorted(
        (line for line in lines if not OTHER.search(line)),
        key=lambda line: (any(verb in line for verb in LAST), not any(verb in line for verb in FIRST), line),
    )


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[PageShell]:
    """Return a shell with the variables of a container and its mounted files."""
    with s3_server("bucket", "--bucket", "other-bucket") as endpoint:
        shell = PageShell(tmp_path, endpoint)
        options = ("--set", f"objectStore.endpoint={endpoint}", "--set", "objectStore.region=us-east-1")
        (config,) = [each for each in render(tmp_path, *options) if each["kind"] == "ConfigMap"]
        (tmp_path / "config.yaml").write_text(config["data"]["config.yaml"])
        assert yaml.safe_load(config["data"]["config.yaml"])["database"] == {"url": "s3://bucket/orders"}
        secrets = tmp_path / "secrets"
        secrets.mkdir()
        for name in ("store__access_key_id", "store__secret_access_key"):
            (secrets / name).write_text("shale-local")
        shell.run("unset SHALE_URL SHALE_STORE__ENDPOINT SHALE_STORE__REGION URL STORE")
        shell.run("unset SHALE_STORE__ACCESS_KEY_ID SHALE_STORE__SECRET_ACCESS_KEY")
        shell.run(f"export SHALE_CONFIG={tmp_path}/config.yaml SHALE_SECRETS_DIR={secrets} SHALE_ADMIN__PORT=9464")
        try:
            yield shell
        finally:
            shell.abandon()


@pytest.mark.soak
def test_commands_of_runbooks_work_in_a_pod(pod: PageShell) -> None:
    pod.run("shale kv put KEY value")
    pod.run("shale backup create --backups s3://other-bucket/orders")
    pod.run("shale up")
    made = json.loads(pod.run("shale checkpoint create --name for-the-test --lifetime 1d -o json"))
    ran = pod_commands()
    assert len(ran) > 35
    clones = 0
    for line in ran:
        clones += "clone create" in line
        is_further = "clone create" in line and clones > 1
        pod.run(re.sub(r"\bID\b", made["id"], f"{line}-{clones}" if is_further else line))
    pod.close()
