"""``make spark-demo``: the data pipeline on real data, from a DataFrame to a summary whose counts must match."""
