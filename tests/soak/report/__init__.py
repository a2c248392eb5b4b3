"""The report of a run: JSON, and one HTML file that needs nothing else."""
