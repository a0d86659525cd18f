"""The page's own tests, which need no browser, and its types."""

import pytest

from mashbox.ui import build


@pytest.mark.slow
@pytest.mark.parametrize("script", ["test", "check"])
def test_script(bundle: None, script: str) -> None:
    assert build.run_script(script, []) == 0
