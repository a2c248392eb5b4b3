"""The garbage collector as a daemon: `shale.garbage` with settings, health and a loop for each database."""
