"""What a run does: its options, and the faults that a seed draws."""
