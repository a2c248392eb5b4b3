"""The compactor daemon: a coordinator, and by default a worker in the same process."""
