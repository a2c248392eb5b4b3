"""The compose stack on a real engine: ``make compose-check`` (docs/how-to/containers.md, not in the default tests).

``BASE_IMAGE`` chooses the base of the images, ``SHALE_IMAGE`` an image that is not built, ``COMPOSE`` the command of
compose.  Where no registry can be reached,
``BINARIES=/usr/bin`` makes images of versitygw, Prometheus and Alertmanager from programs of this machine (``images``),
and Grafana is left out unless ``GRAFANA_IMAGE`` names one.
"""
