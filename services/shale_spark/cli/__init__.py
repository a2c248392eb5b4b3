"""``shale spark``: the jobs of this room as commands."""
