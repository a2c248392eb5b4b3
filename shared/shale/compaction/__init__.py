"""What may be compacted and what should be: specs, the rules V1–V13, scheduling; pure functions of frozen values."""
