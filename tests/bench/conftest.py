"""The benches use the running Baton of the app scope."""

from tests.app.conftest import baton, models

__all__ = ["baton", "models"]
