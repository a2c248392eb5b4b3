"""A worker's session before and after its Java process was killed.

python -m tests.integration.soak.lost_session
"""

import os
import signal

from shale.service.config.spark_section import SparkSettings
from shale_spark.compaction.session_provider import SessionProvider
from shale_spark.session import spark_session
from shale_spark.tasks import TaskInfo, run_tasks

SETTINGS = SparkSettings(master="local[1]", conf=(("spark.driver.memory", "512m"),))


def work(plan: bytes, _info: TaskInfo) -> bytes:
    """Run a trivial task."""
    return plan + b"!"


def main() -> None:
    """Lose a session that was killed, and one that was stopped."""
    sessions = SessionProvider(lambda: spark_session(SETTINGS, app_name="lost"), SETTINGS)
    first = sessions.get()
    assert run_tasks(first, [b"1"], work) == [b"1!"]
    assert sessions.get() is first
    assert first._jvm is not None
    os.kill(first._jvm.java.lang.ProcessHandle.current().pid(), signal.SIGKILL)
    second = sessions.get()
    assert second is not first
    assert run_tasks(second, [b"2"], work) == [b"2!"]
    second.stop()
    assert run_tasks(sessions.get(), [b"3"], work) == [b"3!"]
    sessions.close()
    print("done")


if __name__ == "__main__":
    main()
