"""The commit protocol: sequenced files, boundaries, epochs, manifests, compactions files, checkpoints, the WAL."""
