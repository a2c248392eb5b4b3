"""What administrators do to a database from outside its processes; ``Admin`` is the front."""
