"""The processes of a run, their network, their clocks and their disks."""
