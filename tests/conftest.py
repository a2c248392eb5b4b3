"""Settings for all tests."""

from hypothesis import settings

# A shared machine may take any time for one example; hanging tests are the timeout's business.
settings.register_profile("shale", deadline=None)
settings.load_profile("shale")
