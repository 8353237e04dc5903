"""What all scopes share."""

import os

from hypothesis import settings

# The suite gives the same result on every run; HYPOTHESIS_PROFILE=default looks for new counterexamples.
settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
