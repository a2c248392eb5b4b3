"""Programs of the local stack that are no part of Shale.  Containers run each file by itself."""
