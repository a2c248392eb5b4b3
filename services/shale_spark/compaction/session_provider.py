"""The Spark session of a worker: made when the first job needs it, and made again after it was lost."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from shale.service.config.spark_section import SparkSettings
from shale_compactor.execution.job import ExecutorLost

_LOST = (Py4JError, PySparkException, OSError, EOFError)


class SessionLost(ExecutorLost):
    """The Spark session is gone, or none can be made."""


class SessionProvider:
    """Holds one session; every method blocks and belongs into a thread.

    Args:
        make: makes a session, or finds the active one.
        settings: number of ranges of a job, and the address at which executors reach this process; a session over
            Connect knows neither, so the settings must have them (``require_executable``).
    """

    def __init__(self, make: Callable[[], SparkSession], settings: SparkSettings) -> None:
        self._make = make
        self._settings = settings
        self._session: SparkSession | None = None
        self._lock = Lock()

    def get(self) -> SparkSession:
        """Return a session that works; one over Connect reconnects by itself.

        Raises:
            InvalidRequestError: there is no Java for it.
            SessionLost: none can be started.
        """
        with self._lock:
            if self._session is not None and not self._settings.is_remote and not _is_alive(self._session):
                _forget(self._session)
                self._session = None
            if self._session is None:
                try:
                    self._session = self._make()
                except _LOST as error:
                    raise SessionLost(f"no Spark session can be started: {one_line_of(error)}") from error
            return self._session

    def is_lost(self) -> bool:
        """Return whether the session is gone; over Connect that is unknown, so ``False``."""
        with self._lock:
            return self._session is not None and not self._settings.is_remote and not _is_alive(self._session)

    def close(self) -> None:
        """Stop the session, if there is one."""
        with self._lock:
            if self._session is not None:
                _forget(self._session)
                self._session = None

    def ranges(self, session: SparkSession) -> int:
        """Return how many ranges keep the cluster busy: by default one for each core that it has now."""
        if self._settings.ranges is not None:
            return self._settings.ranges
        with _translated():
            return session.sparkContext.defaultParallelism

    def event_host(self, session: SparkSession) -> str:
        """Return the address at which executors reach this process."""
        if self._settings.event_host is not None:
            return self._settings.event_host
        with _translated():
            host = session.sparkContext.getConf().get("spark.driver.host")
        assert host is not None, "Spark sets it when it starts"
        return host


@contextmanager
def _translated() -> Iterator[None]:
    """Raise ``SessionLost`` if the session does not answer."""
    try:
        yield
    except _LOST as error:
        raise SessionLost(f"the Spark session does not answer: {one_line_of(error)}") from error


def one_line_of(error: BaseException) -> str:
    """Return the error's name and the first line of its text, which may be a whole traceback."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


def _is_alive(session: SparkSession) -> bool:
    java = session.sparkContext._jsc
    try:
        return java is not None and not java.sc().isStopped()
    except (Py4JError, OSError):
        return False


def _forget(session: SparkSession) -> None:
    """Stop a session and clear PySpark's reference to its Java process, which it would use even if that is dead."""
    try:
        session.stop()
    except (Py4JError, OSError):
        SparkContext._active_spark_context = None
    gateway = SparkContext._gateway
    if gateway is not None and not _answers(gateway):
        SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = None


def _answers(gateway: object) -> bool:
    try:
        gateway.jvm.System.currentTimeMillis()  # type: ignore[attr-defined]
    except (Py4JError, OSError):
        return False
    return True
