"""versitygw, the S3 server of the local stack, as a child process of a test."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.store.servers import SECRET, child_process, wait_for_port
from tests.ports import free_port


def find_versitygw() -> str | None:
    """Return the path of the program, if there is one."""
    return find_program("versitygw")


def find_program(name: str) -> str | None:
    """Return the path of a program: on PATH, where Go installs programs, or where ``make versitygw`` puts its own."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folders = (cache / "shale", Path.home() / "go" / "bin")
    return shutil.which(name) or next(
        (found for folder in folders if (found := shutil.which(name, path=str(folder)))), None
    )


needs_versitygw = pytest.mark.skipif(find_versitygw() is None, reason="versitygw is not here: make versitygw")


@contextmanager
def versitygw(bucket: str, folder: Path) -> Iterator[str]:
    """Serve an empty bucket on a free port; yields the URL.  The folder keeps the objects."""
    program = find_versitygw()
    assert program is not None
    (folder / bucket).mkdir(parents=True)
    require_attributes(folder)
    port = free_port()
    credentials = ["--access", SECRET, "--secret", SECRET]
    with child_process([program, *credentials, "--port", f"127.0.0.1:{port}", "--quiet", "posix", str(folder)]):
        wait_for_port(port)
        yield f"http://127.0.0.1:{port}"


def require_attributes(folder: Path) -> None:
    """Skip the test where files cannot have the attributes in which the server keeps ETags."""
    try:
        os.setxattr(folder, "user.shale", b"")
    except OSError as error:
        pytest.skip(f"{folder} is on a file system without extended attributes: {error}")
