"""The command line of Shale."""
