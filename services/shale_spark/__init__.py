"""Everything that moves rows in bulk, as PySpark jobs; the only package that imports pyspark (docs/architecture.md)."""
