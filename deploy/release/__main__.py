"""Build what a release consists of: ``python -m deploy.release --key KEY``.

A source distribution, a wheel per machine, the list of components (CycloneDX) and the lock file that it is made of, the
notes of the version, the provenance, checksums of all of them and a signature.  Nothing is uploaded.  The steps are in
docs/how-to/release.md.
"""

import argparse
import shlex
import shutil
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from deploy.release.changelog import ReleaseError, notes
from deploy.release.checksums import sign, write_checksums
from deploy.release.images import require_digests
from deploy.release.provenance import statement, write_statement
from deploy.release.tools import REPOSITORY, install_tools, run
from deploy.release.verify import problems

OUTPUT = REPOSITORY / ".shale" / "release"
WHEELS = REPOSITORY / ".shale" / "wheels"


def require_clean_tree() -> None:
    """Require that what is built is what is committed.

    Raises:
        ReleaseError: files are changed or new.
    """
    changed = run("git", "status", "--porcelain")
    if changed:
        raise ReleaseError(f"commit or remove these files first:\n{changed.rstrip()}")


def build_source() -> Path:
    """Build the source distribution."""
    run(Path(sys.executable).with_name("uv"), "build", "--quiet", "--sdist", "-o", OUTPUT)
    (OUTPUT / ".gitignore").unlink(missing_ok=True)  # uv writes one
    return next(OUTPUT.glob("*.tar.gz"))


def build_wheels() -> list[Path]:
    """Build and check the wheels of all machines."""
    shutil.rmtree(WHEELS, ignore_errors=True)
    print(run(sys.executable, "-m", "tests.checks.wheels"), end="", flush=True)
    return [Path(shutil.copy2(each, OUTPUT)) for each in sorted(WHEELS.glob("*/*.whl"))]


def main() -> None:
    """Build the release in ``.shale/release``."""
    parser = argparse.ArgumentParser(prog="python -m deploy.release")
    parser.add_argument("--key", type=Path, help="sign with this OpenSSH key; without it nothing is signed")
    parser.add_argument("--without-digests", action="store_true", help="release although images have no digest")
    arguments = parser.parse_args()
    began = datetime.now(UTC)
    version = str(tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"])
    try:
        require_clean_tree()
        require_digests(REPOSITORY, is_required=not arguments.without_digests)
        text = notes((REPOSITORY / "CHANGELOG.md").read_text(), version)
        shutil.rmtree(OUTPUT, ignore_errors=True)
        OUTPUT.mkdir(parents=True)
        tools = install_tools()
        packages = [build_source(), *build_wheels()]
        print(run(tools / "twine", "check", "--strict", *packages), end="", flush=True)
        components = OUTPUT / f"shale-{version}.cdx.json"
        run(tools / "cyclonedx-py", "requirements", "requirements.lock", "--pyproject", "pyproject.toml",
            "--output-reproducible", "-o", components)  # fmt: skip
        described = OUTPUT / f"shale-{version}.md"
        described.write_text(f"{text}\n")
        lock = Path(shutil.copy2(REPOSITORY / "requirements.lock", OUTPUT))
        files = [*packages, components, described, lock]
        commit = run("git", "rev-parse", "HEAD").strip()
        stated = OUTPUT / f"shale-{version}.provenance.json"
        times = {"began": began, "ended": datetime.now(UTC)}
        write_statement(stated, statement(files, version=version, commit=commit, repository=REPOSITORY, **times))
        checksums = write_checksums(OUTPUT, [*files, stated])
        if wrong := list(problems(OUTPUT, signers=None, commit=commit, repository=REPOSITORY)):
            raise ReleaseError("\n".join(wrong))
        if arguments.key is not None:
            sign(checksums, arguments.key)
    except ReleaseError as error:
        raise SystemExit(f"release: {error}") from error
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"release: {shlex.join(error.cmd)} failed:\n{error.stdout}{error.stderr}") from error
    print(f"{OUTPUT.relative_to(REPOSITORY)} has {len(packages)} packages of version {version}")


if __name__ == "__main__":
    main()
