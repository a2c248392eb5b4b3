"""PySpark jobs that move rows in bulk; the only package that imports pyspark (docs/concepts/architecture.md)."""
