"""Questions of new users, and the search of the site: one of the first three pages has the answer.

The site is built as `make docs` does, and searched by the code that runs in a browser.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import PYTHONPATH, REPOSITORY

NODE = shutil.which("node")
SHOWN = 3
QUESTIONS = {
    "why was my writer fenced": {"how-to/faq", "concepts/fencing", "how-to/web-frameworks"},
    "FencedError": {"how-to/faq", "concepts/fencing", "how-to/web-frameworks"},
    "several writers": {"how-to/faq", "how-to/web-frameworks"},
    "writes stall": {"how-to/faq", "how-to/embedded-services"},
    "writes are slow": {"how-to/faq", "how-to/tuning", "how-to/troubleshoot"},
    "open hangs": {"how-to/faq"},
    "access denied": {"how-to/faq", "how-to/s3"},
    "s3 credentials": {"how-to/s3"},
    "which permissions does a reader need": {"how-to/faq", "how-to/s3"},
    "jupyter notebook": {"how-to/notebooks"},
    "fastapi": {"how-to/web-frameworks"},
    "gunicorn workers": {"how-to/web-frameworks"},
    "back up a database": {"how-to/backup-and-restore"},
    "restore a backup": {"how-to/backup-and-restore"},
    "expire rows after a time": {"how-to/faq", "how-to/writing"},
    "ttl": {"how-to/faq", "how-to/writing"},
    "how much does it cost": {"how-to/capacity", "concepts/cost-model"},
    "is a row safe when put returns": {"how-to/faq", "concepts/durability"},
    "redis lock": {"how-to/faq", "reference/resp", "reference/redis"},
    "import csv": {"how-to/faq", "how-to/command-line"},
    "read replica": {"tutorial/04-readers", "how-to/reading"},
    "encryption at rest": {"how-to/encryption"},
    "pandas dataframe": {"how-to/faq", "how-to/notebooks"},
    "disk space grows": {"how-to/faq", "how-to/gc"},
    "delete old files": {"how-to/faq", "how-to/gc"},
    "corrupted data": {"how-to/faq", "how-to/verify"},
    "migrate from rocksdb": {"how-to/migrate-from-rocksdb"},
    "run everything in one process": {"how-to/embedded-services"},
    "compare with lmdb": {"concepts/comparison"},
    "kubernetes": {"how-to/kubernetes"},
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return the pages that the search shows for each question."""
    theme = importlib.util.find_spec("material")
    assert theme is not None
    assert theme.origin is not None
    (worker,) = Path(theme.origin).parent.glob("templates/assets/javascripts/workers/search.*.min.js")
    site = tmp_path_factory.mktemp("site")
    env = {**os.environ, "PYTHONPATH": PYTHONPATH, "NO_MKDOCS_2_WARNING": "1"}
    command = ["mkdocs", "build", "--strict", "--quiet", "--config-file", "deploy/site/mkdocs.yml", "-d", str(site)]
    subprocess.run([sys.executable, "-m", *command], cwd=REPOSITORY, env=env, check=True)
    script, index = Path(__file__).with_name("search.js"), site / "search/search_index.json"
    done = subprocess.run([str(NODE), script, worker, index, *QUESTIONS], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return {
        question: [page.removesuffix(".html") for page in each] for question, each in zip(QUESTIONS, found, strict=True)
    }


# Each test process would build the site.
@pytest.mark.slow
@pytest.mark.xdist_group("site")
@pytest.mark.skipif(NODE is None, reason="the search of the site is a script, and there is no node")
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer_is_among_the_first_pages(question: str, pages: dict[str, list[str]]) -> None:
    assert QUESTIONS[question] & set(pages[question][:SHOWN]), pages[question][: 2 * SHOWN]
