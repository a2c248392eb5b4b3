"""The object store of the check: versitygw on a folder, next to the control plane."""

import urllib.error
import urllib.request

from tests.kube.layout import CONTROL_PLANE, STORE_PORT, Layout
from tests.kube.processes import Processes, wait_for

BUCKET = "shale"
ENDPOINT = f"http://{CONTROL_PLANE}:{STORE_PORT}"
ACCESS_KEY, SECRET_KEY = "shale-check", "shale-check-secret"
START_S = 60.0


def start(layout: Layout, processes: Processes) -> None:
    """Start the store with one empty bucket."""
    objects = layout.state / "objects"
    (objects / BUCKET).mkdir(parents=True)
    processes.start(
        "versitygw",
        [str(layout.cache / "versitygw"), "--port", f"{CONTROL_PLANE}:{STORE_PORT}", "posix", str(objects)],
        env={"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY},
    )
    wait_for("object store", START_S, _answers)


def _answers() -> bool | None:
    try:
        with urllib.request.urlopen(f"{ENDPOINT}/", timeout=5):
            return True
    except urllib.error.HTTPError:
        return True  # it asks for a signature
