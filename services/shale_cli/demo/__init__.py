"""``shale demo``: a demonstration on real data, which ends with a summary of checked counts."""
