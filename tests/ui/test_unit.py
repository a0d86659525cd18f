"""The page's own tests, which need no browser. Its types are checked by ``make check``."""

import pytest

from mashbox.ui import build


@pytest.mark.slow
def test_vitest(bundle: None) -> None:
    assert build.run_script("test", []) == 0
