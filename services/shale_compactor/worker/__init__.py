"""Claims jobs, executes them, and says that it is alive."""
