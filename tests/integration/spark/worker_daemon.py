"""Spark's daemon of Python workers, which imports the modules of all workers before its first fork.

Spark's own daemon imports nothing, because libraries may start threads; then every worker takes a second of processor
time for imports.  Here the only thread is one of jemalloc, which prepares for forks.
"""

import importlib
import os
import runpy

MODULES = [
    *("numpy", "pandas", "pyarrow", "pyspark.worker", "pyspark.sql.worker.create_data_source"),
    *("pyspark.sql.worker.plan_data_source_read", "pyspark.sql.worker.write_into_data_source"),
    *("shale_spark.source.data_source", "shale_spark.changes.reader", "shale_spark.load.data_source_writer"),
    *("shale.store.local_store.adapter", "anyio._backends._asyncio"),
]

if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    for name in MODULES:
        importlib.import_module(name)
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
