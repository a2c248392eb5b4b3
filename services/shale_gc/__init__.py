"""The garbage collector: a daemon that deletes what nobody can need any more."""
