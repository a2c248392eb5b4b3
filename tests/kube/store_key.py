"""The key of the store is replaced: both keys are valid for a while, and the old one is refused at the end."""

import time
from pathlib import Path

from tests.kube import release
from tests.kube.cluster import is_ready
from tests.kube.errors import KubeCheckError
from tests.kube.processes import wait_for
from tests.kube.scenarios import BACK_S, Stage, report_gap, running, wait_roles
from tests.kube.store import REFUSED, Key, Store

USED_S = 180.0


def rotate(stage: Stage, store: Store, chart: Path, old: Key, new: Key) -> None:
    """Replace the key as docs/how-to/kubernetes.md says; no write may be lost, and nothing may need the old key."""
    before, known = running(stage), len(store.requests())
    store.add(new)
    stage.cluster.apply(release.store_secret(new))
    start = time.monotonic()
    stage.release.restart(chart, new.id)
    wait_roles(stage)
    stage.report.add("rotation of the store's key", time.monotonic() - start)
    report_gap(stage, "no write acknowledged in the rotation of the store's key", start)
    after = running(stage)
    if kept := {role for role in after if after[role] & before[role]}:
        raise KubeCheckError(f"the rotation restarted all roles but {sorted(kept)}")
    wait_for("requests of every pod with the new key", USED_S, lambda: _all_use(stage, store, known, new))
    removed = len(store.requests())
    store.remove(old)
    stage.workload.wait_acknowledged(time.monotonic())
    _require_only(stage, store, removed, new)
    wait_for("refusal of the old key", BACK_S, lambda: store.refuses(old))
    if all(request.error != REFUSED for request in store.requests()[removed:]):
        raise KubeCheckError("the log of the store has no refused request, although the old key was refused")
    if after != running(stage):
        raise KubeCheckError("pods restarted when the old key was removed")
    stage.report.fact("rotation of the store's key", f"{stage.workload.check()} acknowledged writes, none lost")


def _all_use(stage: Stage, store: Store, known: int, key: Key) -> bool | None:
    # Every pod has sent a request with this key.
    used = {request.address for request in store.requests()[known:] if request.key_id == key.id}
    if idle := [name for name, address in _addresses(stage).items() if address not in used]:
        raise KubeCheckError(f"no request of {sorted(idle)}")
    return True


def _require_only(stage: Stage, store: Store, known: int, key: Key) -> None:
    # Since the old key is gone, pods use this one only, and are not refused.
    names = {address: name for name, address in _addresses(stage).items()}
    for request in store.requests()[known:]:
        if request.address in names and (request.key_id != key.id or request.error == REFUSED):
            raise KubeCheckError(f"{names[request.address]} used another key than the new one: {request}")


def _addresses(stage: Stage) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in stage.cluster.pods() if is_ready(pod)}
