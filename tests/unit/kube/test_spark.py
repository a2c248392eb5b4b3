"""Tests of what the check asks of Spark."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.kube import spark
from tests.kube.errors import KubeCheckError


def _manifest(l0: list[str], runs: list[int]) -> Mapping[str, Any]:
    tree = {"l0": [{"id": each} for each in l0], "compacted": [{"id": each} for each in runs]}
    return {"manifest": {"tree": tree}}


def test_all_l0s_and_runs_are_compacted() -> None:
    assert spark.sources(_manifest(["01A", "01B"], [7, 3])) == ["01A", "01B", "SR7", "SR3"]
    with pytest.raises(KubeCheckError, match="no L0 and no run"):
        spark.sources(_manifest([], []))


def test_one_run_must_be_left() -> None:
    spark.require_compacted(["01A", "SR3"], _manifest([], [3]))
    for left in (_manifest(["01A"], [3]), _manifest([], [4, 3]), _manifest(["01A"], [])):
        with pytest.raises(KubeCheckError, match="is left instead of one run"):
            spark.require_compacted(["01A", "SR3"], left)


def test_driver_and_executors_are_restricted() -> None:
    executor = json.loads(spark.template()["data"][spark.TEMPLATE])
    for pod in (spark.driver(["01A"]), executor):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_no_key_of_the_store_is_on_a_command_line() -> None:
    container = spark.driver(["01A"])["spec"]["containers"][0]
    keys = [word for word in container["args"] if "AWS_" in word]
    assert sorted(keys) == [
        "spark.kubernetes.executor.secretKeyRef.AWS_ACCESS_KEY_ID=orders-store:access-key-id",
        "spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY=orders-store:secret-access-key",
    ]
    assert {each["name"] for each in container["env"] if "secretKeyRef" in each.get("valueFrom", {})} == {
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
    }
