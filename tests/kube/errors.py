"""The one error of the check."""


class KubeCheckError(Exception):
    """A difference between the cluster and its description, or a tool that this machine lacks."""
