"""Planning steps of the coordinator: pure functions of compactions and manifest."""
