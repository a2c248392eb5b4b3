"""What becomes of compactions and manifest at each step of the coordinator: pure functions of the two values."""
