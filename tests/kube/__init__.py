"""A real control plane with nodes on one machine, and the chart installed on it: ``make kube-check``."""
