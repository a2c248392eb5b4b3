"""Change feed: read every change of the WAL once, in order, from an offset that can be stored."""
