"""Jobs at once: their order, their errors, and what a stop does."""

import threading
import time

import pytest

from mashbox.pull import parallel
from mashbox.pull.progress import Progress
from tests.patience import PATIENCE
from tests.pull.conftest import Recorder


def test_results_keep_the_jobs_order() -> None:
    def job(number: int) -> parallel.Job[int]:
        return lambda progress: (time.sleep(0.02 * (3 - number)), number)[1]

    assert parallel.run([job(number) for number in range(4)], Recorder()) == [0, 1, 2, 3]


def test_no_more_than_so_many_run_at_once() -> None:
    running, most, lock = 0, 0, threading.Lock()
    three = threading.Barrier(3, timeout=PATIENCE)

    def job(progress: Progress) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        three.wait()
        with lock:
            running -= 1

    parallel.run([job] * 9, Recorder(), at_once=3)
    assert most == 3


def test_the_first_error_is_raised_and_ends_the_others() -> None:
    ended = threading.Event()

    def endless(progress: Progress) -> None:
        try:
            while True:
                progress.update("x", 0, None)
                time.sleep(0.005)
        finally:
            ended.set()

    def failing(progress: Progress) -> None:
        time.sleep(0.05)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        parallel.run([endless, failing, endless], Recorder())
    assert ended.is_set()


def test_one_job_runs_where_it_is_called() -> None:
    assert parallel.run([lambda progress: threading.current_thread()], Recorder()) == [
        threading.current_thread()
    ]
