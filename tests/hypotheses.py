"""Profiles of the property tests: ``fast`` (which ``make fast`` names) tries fewer examples.

No example has a deadline: on a busy machine it would tell of the machine only.
"""

from hypothesis import HealthCheck, settings

_FEW = 15

settings.register_profile("whole", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fast", settings.get_profile("whole"), max_examples=_FEW)
settings.load_profile("whole")


def examples(many: int) -> int:
    """``many``, or as few as the profile in use says. Asked when a test's module is imported."""
    return min(many, _FEW) if settings.get_current_profile_name() == "fast" else many
