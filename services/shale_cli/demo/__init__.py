"""``shale demo``: the main job on real data, from an empty directory to a summary whose counts must match."""
