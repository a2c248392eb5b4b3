"""``python -m tests.kube``: a control plane and nodes on this machine, the chart installed, disturbed and removed.

Everything runs in network, mount and process namespaces of its own, which end with this command: the machine keeps its
networks, mounts and kernel settings.  Binaries and images are kept in a cache.
"""

import argparse
import os
import shutil
import subprocess
import sys

from tests.kube import build, images
from tests.kube.errors import KubeCheckError
from tests.kube.inside import PARTS, SPARK
from tests.kube.layout import CGROUP, Layout
from tests.kube.node import remove_cgroups
from tests.kube.processes import say
from tests.paths import PYTHONPATH, REPOSITORY

FOLDER = REPOSITORY / ".shale" / "kube"
NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
# The shell is the first process of its namespace: it takes processes that lost their parent.
FIRST = ("bash", "-c", '"$@"; exit $?', "check")


def main() -> int:
    """Build what is missing, and run the check in its namespaces; return its exit code."""
    parser = argparse.ArgumentParser(description="Check the chart on a real control plane with real nodes.")
    parser.add_argument("--rounds", type=int, default=50, help="how often pods are killed")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--previous", default="HEAD~1", help="the commit from which the release is upgraded")
    parser.add_argument("--current-image", help="an image of Docker to take instead of building one of this commit")
    parser.add_argument("--previous-image", help="the same for the commit from which the release is upgraded")
    parser.add_argument("--spark-image", help="the same for drivers and executors of Spark")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--leave-out", nargs="*", choices=PARTS, default=[], help="parts of the check that do not run")
    chosen.add_argument("--only", nargs="+", choices=PARTS, help="parts that run; all others are left out")
    parser.add_argument("--build", action="store_true", help="only build what the cache lacks")
    arguments = parser.parse_args()
    left_out = [
        part for part in PARTS if part in arguments.leave_out or (arguments.only and part not in arguments.only)
    ]
    state = FOLDER / "state"
    layout = Layout(build.cache(), state, arguments.nodes)
    try:
        build.require_tools()
        build.build(set(left_out))
        previous = build.revision(arguments.previous)
        shutil.rmtree(state, ignore_errors=True)
        state.mkdir(parents=True)
        made = {images.CURRENT: arguments.current_image, images.PREVIOUS: arguments.previous_image}
        made[images.SPARK] = arguments.spark_image
        sources = images.Sources(previous, build.working_tree(), {name: of for name, of in made.items() if of})
        images.write_list(layout.image_list, images.prepare(layout, sources, spark=SPARK not in left_out))
        if arguments.build:
            return 0
        images.export(previous, state / "previous")
    except KubeCheckError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    say(f"upgrade from {previous[:12]}; state and logs in {state}")
    inner = [sys.executable, "-m", "tests.kube.inside", "--state", str(state)]
    inner += ["--nodes", str(arguments.nodes), "--rounds", str(arguments.rounds)]
    inner += ["--leave-out", *left_out]
    try:
        done = subprocess.run([*NAMESPACES, *FIRST, *inner], env={**os.environ, "PYTHONPATH": PYTHONPATH}, check=False)
    finally:
        remove_cgroups(CGROUP)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
