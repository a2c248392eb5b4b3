"""The command of the image when Spark's Kubernetes client starts a container of it."""

from pathlib import Path

import pytest

from shale.errors import InvalidRequestError
from shale_spark.kubernetes import driver_command, executor_command, main

ENVIRON = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_ID": "7",
    "SPARK_EXECUTOR_POD_IP": "10.1.2.3",
    "SPARK_EXECUTOR_POD_NAME": "shale-exec-7",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    **{f"SPARK_JAVA_OPT_{number}": f"-Dnumber={number}" for number in range(12)},
}
JAVA, HOME = Path("/jvm/bin/java"), Path("/pyspark")


def test_an_executor_gets_what_its_driver_said() -> None:
    command = executor_command(ENVIRON, java=JAVA, spark_home=HOME)
    assert command[0] == "/jvm/bin/java"
    assert command[1:13] == [f"-Dnumber={number}" for number in range(12)], "in the order of their numbers"
    assert command[13:15] == ["-Xms1024m", "-Xmx1024m"]
    backend = command.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
    assert command[backend - 2 : backend] == ["-cp", "/pyspark/conf:/pyspark/jars/*"]
    assert dict(zip(command[backend + 1 :: 2], command[backend + 2 :: 2], strict=True)) == {
        "--driver-url": "spark://CoarseGrainedScheduler@driver:7078",
        "--executor-id": "7",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.1.2.3",
        "--resourceProfileId": "0",
        "--podName": "shale-exec-7",
    }


def test_classes_of_the_user_are_found() -> None:
    more = {"SPARK_CONF_DIR": "/opt/spark/conf", "HADOOP_CONF_DIR": "/hadoop", "SPARK_EXTRA_CLASSPATH": "/more.jar"}
    command = executor_command(ENVIRON | more, java=JAVA, spark_home=HOME)
    assert command[command.index("-cp") + 1] == "/opt/spark/conf:/hadoop:/pyspark/jars/*:/more.jar"


@pytest.mark.parametrize("missing", [name for name in ENVIRON if "OPT" not in name])
def test_a_missing_variable_of_the_container_is_named(missing: str) -> None:
    environ = {name: value for name, value in ENVIRON.items() if name != missing}
    with pytest.raises(InvalidRequestError, match=f"{missing} is not set"):
        executor_command(environ, java=JAVA, spark_home=HOME)


def test_a_driver_listens_where_its_pod_is() -> None:
    command = driver_command({"SPARK_DRIVER_BIND_ADDRESS": "10.1.2.4"}, ["local:///job.py", "x"], spark_home=HOME)
    assert command[0] == "/pyspark/bin/spark-submit"
    assert "spark.driver.bindAddress=10.1.2.4" in command
    assert command[-4:] == ["--deploy-mode", "client", "local:///job.py", "x"]


def test_everything_else_is_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "exit-codes", "-o", "json"]) == 0
    assert '"OK"' in capsys.readouterr().out
