"""``spark.readStream.format("shale")``: the changes of a database as they are written."""
