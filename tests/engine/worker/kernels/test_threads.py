"""The number of threads follows what a machine has free."""

import random

import pytest

from mashbox.engine.worker.kernels.threads import MOST, ThreadChoice, Threads, ladder


def pace(cores: int, threads: int) -> float:
    """Seconds of a step on ``cores`` free ones: shared by as many, and much slower with more."""
    return 0.01 / threads if threads <= cores else 0.05


def drive(choice: ThreadChoice, cores: int, steps: int, noise: random.Random) -> list[int]:
    used = []
    for _ in range(steps):
        used.append(choice.threads)
        choice.note(pace(cores, choice.threads) * noise.uniform(0.95, 1.05))
    return used


@pytest.mark.parametrize(
    ("most", "rungs"), [(1, [1]), (2, [1, 2]), (4, [1, 2, 3, 4]), (8, [1, 2, 3, 4, 5, 6, 8])]
)
def test_the_ladder_ends_at_both_ends(most: int, rungs: list[int]) -> None:
    assert ladder(most) == rungs


@pytest.mark.parametrize("most", [1, 2, 3, 4, 8, 16, 64])
def test_an_idle_machine_is_used_whole_and_trials_are_rare(most: int) -> None:
    used = drive(ThreadChoice(most), most, 10_000, random.Random(1))
    assert used[0] == most
    # One or two slow steps a trial, and trials are ever rarer.
    assert sum(threads != most for threads in used) <= 60
    assert sum(threads != most for threads in used[-2 * MOST :]) <= 12


@pytest.mark.parametrize(("most", "free"), [(2, 1), (4, 3), (8, 5), (16, 12)])
def test_a_busy_neighbour_is_given_way_to_and_its_place_taken_again(most: int, free: int) -> None:
    choice, noise = ThreadChoice(most), random.Random(2)
    drive(choice, most, 3_000, noise)
    crowded = drive(choice, free, 600, noise)
    assert free in crowded
    assert crowded[-200:].count(free) > 180
    alone = drive(choice, most, 4 * MOST, noise)
    assert alone[-500:].count(most) > 450


def test_work_that_grows_slowly_is_no_reason_to_look_around() -> None:
    choice = ThreadChoice(2)
    for step in range(5_000):
        choice.note(pace(2, choice.threads) * (1 + step / 1000))
    trials = 0
    for step in range(5_000, 9_000):
        trials += choice.threads != 2
        choice.note(pace(2, choice.threads) * (1 + step / 1000))
    assert trials <= 12


def test_numbers_of_rows_are_watched_apart() -> None:
    threads = Threads(2)
    for _ in range(200):
        threads.note(1, pace(1, threads.of(1)))
        threads.note(64, 64 * pace(2, threads.of(64)))
        threads.note(20, 5.0)
    assert (threads.of(1), threads.of(64), threads.of(64), threads.of(9)) == (1, 2, 2, 2)
