"""``spark.read.format("shale")``: a database as a DataFrame."""
