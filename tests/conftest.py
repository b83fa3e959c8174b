"""What every test shares: no deadlines for Hypothesis, since a busy machine is no bug.

The ordinary run gives Hypothesis the same examples each time, so that red means "this change". New ones are
looked for by `make fuzz`.
"""

import os

from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
