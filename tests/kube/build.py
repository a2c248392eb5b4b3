"""Binaries of the cluster: built once per version from Go modules, kept in a cache outside the repository."""

import json
import os
import shutil
import time
from collections.abc import Mapping, Set
from pathlib import Path

from tests.kube.errors import KubeCheckError
from tests.kube.processes import run, say
from tests.paths import REPOSITORY

KUBERNETES = "v1.34.4"
MODULES = Path(__file__).with_name("modules")
COMMANDS = ("kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl")
"""Names of the one program that is built of ``MODULES``."""
STATE_METRICS = "kube-state-metrics"
DOWNLOADED = {
    "helm": ("helm.sh/helm/v3@v3.18.6", "./cmd/helm"),
    STATE_METRICS: ("k8s.io/kube-state-metrics/v2@v2.18.0", "."),
    "versitygw": ("github.com/versity/versitygw@v1.8.0", "./cmd/versitygw"),
}
"""Module and package of commands whose own modules say what they are built of."""
DEBIAN = {
    "etcd": "etcd-server",
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "openssl": "openssl",
    "prometheus": "prometheus",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "ip": "iproute2",
    "nsenter": "util-linux",
}
"""Package by program."""
BUILD_S = 3600.0


def cache() -> Path:
    """Return the folder of binaries of this version."""
    root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return root / "shale" / "kube" / KUBERNETES


def require_tools() -> None:
    """Require what the system's packages bring.

    Raises:
        KubeCheckError: something is missing; the message says which packages to install.
    """
    if os.geteuid() != 0:
        raise KubeCheckError("a kubelet needs namespaces, mounts and cgroups of the machine: run this as root")
    missing = sorted({package for program, package in DEBIAN.items() if shutil.which(program) is None})
    if missing:
        raise KubeCheckError(f"install these packages: apt-get install -y --no-install-recommends {' '.join(missing)}")
    if shutil.which("go") is None:
        raise KubeCheckError("Go 1.24 or later is not on the path; it builds the cluster")


def build(left_out: Set[str]) -> None:
    """Build what the cache lacks, except the commands ``left_out``."""
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    env = {"GOFLAGS": f"-buildvcs=false -trimpath {os.environ.get('GOFLAGS', '')}".strip()}
    version = f"-s -w -X k8s.io/component-base/version.gitVersion={KUBERNETES}"
    build_one(folder / "kubernetes", version, MODULES, env)
    for name in COMMANDS:
        if not (folder / name).exists():
            (folder / name).symlink_to("kubernetes")
    for name in ("pause", "coredns"):
        build_one(folder / name, "-s -w", MODULES / name, env)
    for name, (module, package) in DOWNLOADED.items():
        if name not in left_out and not (folder / name).exists():
            build_one(folder / name, "-s -w", downloaded(module), env, package)


def downloaded(module: str) -> Path:
    """Return the folder of a version of a module.

    ``go install`` would also ask for a list of all versions, which not every proxy has.
    """
    found = json.loads(run(["go", "mod", "download", "-json", module], timeout_s=BUILD_S))
    return Path(found["Dir"])


def build_one(target: Path, flags: str, source: Path, env: Mapping[str, str], package: str = ".") -> None:
    """Build a command of a module with flags of the linker, unless the cache has it."""
    if target.exists():
        return
    start = time.monotonic()
    run(["go", "build", "-ldflags", flags, "-o", str(target), package], cwd=source, env=env, timeout_s=BUILD_S)
    say(f"built {target.name} in {time.monotonic() - start:.0f} s")


def revision(name: str) -> str:
    """Return the full id of a commit of the repository."""
    return run(["git", "rev-parse", "--verify", f"{name}^{{commit}}"], cwd=REPOSITORY).strip()


def working_tree() -> str:
    """Return the id of the commit that is checked out, marked if files differ from it."""
    return run(["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"], cwd=REPOSITORY).strip()
