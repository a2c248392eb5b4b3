"""The worker: claims jobs, executes them, and sends heartbeats."""
