"""A soak that judges itself: processes, clients, faults, a checker of histories, and a report."""
