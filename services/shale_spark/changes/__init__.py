"""``spark.readStream.format("shale")``: the changes of a database as a stream."""
