"""The entry point of the image with Spark: drivers and executors that Kubernetes starts, else the command line.

Spark starts its pods with the argument ``driver`` or ``executor`` and passes the rest in variables; PySpark from pip
has no entry point for them.

Source: Spark's "Running on Kubernetes", and ``BasicExecutorFeatureStep`` of its Kubernetes module, which sets the
variables.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from shale.errors import InvalidRequestError
from shale_spark.prerequisites import require_java

_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_JAVA_OPTION = "SPARK_JAVA_OPT_"
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def executor_command(environ: Mapping[str, str], *, java: Path, spark_home: Path) -> list[str]:
    """Return the command line of an executor.

    Args:
        environ: as Spark's driver made it for the pod.
        java: the program.
        spark_home: the directory of Spark's own jars.

    Raises:
        InvalidRequestError: a variable is missing, so no Spark driver started this container.
    """
    memory = _said(environ, "SPARK_EXECUTOR_MEMORY")
    arguments = [part for option, name in _ARGUMENTS.items() for part in (option, _said(environ, name))]
    options = sorted(
        (name for name in environ if name.startswith(_JAVA_OPTION)), key=lambda name: int(name.rpartition("_")[2])
    )
    folders = (environ.get("SPARK_CONF_DIR", f"{spark_home}/conf"), environ.get("HADOOP_CONF_DIR"))
    jars = (environ.get("SPARK_CLASSPATH"), f"{spark_home}/jars/*", environ.get("SPARK_EXTRA_CLASSPATH"))
    classpath = ":".join(part for part in (*folders, *jars) if part)
    return [
        str(java),
        *(environ[name] for name in options),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        classpath,
        _BACKEND,
        *arguments,
    ]


def driver_command(environ: Mapping[str, str], arguments: Sequence[str], *, spark_home: Path) -> list[str]:
    """Return the command line of a driver that runs in the cluster.

    Raises:
        InvalidRequestError: a variable is missing.
    """
    address = _said(environ, "SPARK_DRIVER_BIND_ADDRESS")
    bind = (
        "--conf",
        f"spark.driver.bindAddress={address}",
        "--conf",
        f"spark.executorEnv.SPARK_DRIVER_POD_IP={address}",
    )
    return [f"{spark_home}/bin/spark-submit", *bind, "--deploy-mode", "client", *arguments]


def _said(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name)
    if not value:
        raise InvalidRequestError(f"{name} is not set: only Spark's driver starts this container with that argument")
    return value


def _spark_home() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None, "the image has it"
    assert spec.submodule_search_locations, "it is a package"
    return Path(next(iter(spec.submodule_search_locations)))


def _become(command: Sequence[str], java_home: Path) -> NoReturn:
    environment = {**os.environ, "JAVA_HOME": str(java_home), "SPARK_HOME": str(_spark_home())}
    os.execve(command[0], list(command), environment)  # noqa: S606 - a shell would only stand between signals and Java


def main(arguments: Sequence[str]) -> int:
    """Become a driver or an executor, or run a command and return its exit code."""
    if not arguments or arguments[0] not in {"driver", "executor"}:
        from shale_cli.__main__ import main as shale

        return shale(arguments)
    try:
        java = require_java().path
        if arguments[0] == "executor":
            command = executor_command(os.environ, java=java / "bin" / "java", spark_home=_spark_home())
        else:
            command = driver_command(os.environ, arguments[1:], spark_home=_spark_home())
    except InvalidRequestError as error:
        sys.stderr.write(f"shale: {error}\n")
        return 2
    _become(command, java)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
