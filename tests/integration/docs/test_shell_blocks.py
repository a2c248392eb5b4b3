"""Every shell block of a page is executed, or a comment in the page says why not."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.code_blocks import PAGES, Block, blocks
from tests.integration.docs.page_shell import PageShell
from tests.integration.store.servers import s3_server
from tests.paths import REPOSITORY

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")

TUTORIAL = REPOSITORY / "docs/tutorial"
TOGETHER = [[TUTORIAL / "03-service.md", TUTORIAL / "04-readers.md", TUTORIAL / "05-compaction.md"]]
"""Pages that continue in the same terminal."""

ROWS = ["shale kv put a 1", "shale kv put z 2"]

BEFORE = {
    "how-to/backup-and-restore.md": ROWS,
    "how-to/checkpoints.md": ROWS,
    "how-to/clones.md": ROWS,
    "how-to/command-line.md": [*ROWS, "shale checkpoint create --name nightly"],
    "how-to/compact-manually.md": [*ROWS, "shale up"],
    "how-to/compaction-policies.md": [
        "shale kv put a 1 -u s3://bucket/db",
        "shale kv put b 2 -u s3://bucket/db",
        """echo '{"at_s": 0, "bytes": 67108864, "distinct": 500000}' > flushes.ndjson""",
        """echo '{"at_s": 60, "bytes": 67108864, "distinct": 500000}' >> flushes.ndjson""",
    ],
    "how-to/debug.md": ["shale writer", "touch writer.log"],
    "how-to/gc.md": [
        *ROWS,
        "shale kv put a 1 -u s3://bucket/users",
        "shale kv put a 1 -u s3://bucket/tenants/t",
        "unset SHALE_URL",
    ],
    "how-to/operate/upgrade.md": ROWS,
    "how-to/rotate-keys.md": [
        'python3 -c \'print("2026-10", "3c" * 32)\' > shale.keys',
        "export SHALE_ENCRYPTION__KEY_FILE=$PWD/shale.keys",
        *ROWS,
    ],
    "how-to/verify.md": ROWS,
    "reference/logs.md": ["shale writer"],
}
"""What a page presupposes: rows, checkpoints, running daemons."""


def is_executed(block: Block) -> bool:
    return block.language == "sh" and block.not_run is None and block.parsed_only is None


def name_of(page: Path) -> str:
    return str(page.relative_to(REPOSITORY)).removeprefix("docs/")


def terminals() -> Iterator[list[Path]]:
    """Yield the pages that share a terminal."""
    joined = {page for pages in TOGETHER for page in pages}
    yield from TOGETHER
    yield from ([page] for page in PAGES if page not in joined and any(map(is_executed, blocks(page))))


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[PageShell]:
    with s3_server("bucket", "--bucket", "other-bucket") as endpoint:
        shell = PageShell(tmp_path, endpoint)
        try:
            yield shell
        finally:
            shell.abandon()


@pytest.mark.slow
@pytest.mark.parametrize("pages", list(terminals()), ids=lambda pages: pages[0].stem)
def test_commands_do_what_the_page_says(pages: list[Path], shell: PageShell) -> None:
    for page in pages:
        for line in BEFORE.get(name_of(page), []):
            shell.run(line)
        printed, executed = "", ""
        for block in blocks(page):
            if is_executed(block):
                printed, executed = shell.run(block.text), block.text
            elif block.is_output:
                shell.require_output(block.text, printed, executed)
    shell.close()


def test_every_command_is_executed_or_its_page_says_why_not() -> None:
    executed = {page for pages in terminals() for page in pages}
    shell_blocks = [block for page in PAGES for block in blocks(page) if block.language == "sh"]
    assert sum(map(is_executed, shell_blocks)) > 40
    for block in shell_blocks:
        reason = block.not_run or block.parsed_only
        assert reason or (is_executed(block) and block.page in executed), str(block)


def test_every_page_with_a_preparation_exists() -> None:
    assert [name for name in BEFORE if not (REPOSITORY / "docs" / name).exists()] == []


def test_output_follows_an_executed_block() -> None:
    for page in PAGES:
        before: Block | None = None
        for block in blocks(page):
            if block.is_output:
                assert before is not None, str(block)
                assert is_executed(before), str(block)
                assert block.language == "text", str(block)
            before = block
