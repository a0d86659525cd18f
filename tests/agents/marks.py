"""What every test of an agent is marked with."""

import pytest

# The first one waits for npm to bring several hundred megabytes.
MARKS = [pytest.mark.agents, pytest.mark.slow, pytest.mark.timeout(900)]
