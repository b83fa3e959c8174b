"""What every test shares: no deadlines for Hypothesis, since a busy machine is no bug."""

from hypothesis import settings

settings.register_profile("embermq", deadline=None)
settings.load_profile("embermq")
