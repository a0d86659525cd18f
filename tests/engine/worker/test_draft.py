"""Guesses by prompt lookup: where they come from, and what they are said to be worth."""

from hypothesis import given
from hypothesis import strategies as st

from mashbox.engine.worker.draft import GRAM, Drafter


def drafter(prompt: list[int], answer: list[int] | None = None) -> Drafter:
    made = Drafter(len(prompt))
    made.extend(prompt)
    for token in answer or []:
        made.add(token)
    return made


def tokens(made: Drafter, most: int = 8) -> list[int]:
    return [guess.token for guess in made.guesses(most)]


def test_what_followed_the_sequences_end_before_is_guessed() -> None:
    prompt = [1, 2, 3, 4, 5, 6, 7, 9, 9, 2, 3, 4]
    assert tokens(drafter(prompt), 4) == [5, 6, 7, 9]
    assert tokens(drafter(prompt, [5, 6]), 2) == [7, 9]


def test_nothing_is_guessed_where_the_end_is_new() -> None:
    assert tokens(drafter([1, 2, 3, 4, 5])) == []
    assert tokens(drafter([1, 2, 9, 1, 2])) == [], "two tokens are too few"
    assert tokens(drafter([])) == []


def test_a_repetition_goes_on_past_its_end() -> None:
    assert tokens(drafter([7, 8, 7, 8, 7, 8]), 5) == [7, 8, 7, 8, 7]
    assert tokens(drafter([4, 4, 4, 4]), 3) == [4, 4, 4]


def test_the_longest_match_wins_and_of_equals_the_latest() -> None:
    assert tokens(drafter([0, 1, 2, 3, 50, 9, 1, 2, 3, 60, 0, 1, 2, 3]), 1) == [50]
    assert tokens(drafter([8, 1, 2, 3, 50, 9, 1, 2, 3, 60, 7, 1, 2, 3]), 1) == [60]


def test_a_wrong_guess_leads_to_another_match() -> None:
    made = drafter([1, 2, 3, 4, 5, 6, 20, 21, 3, 9, 20, 1, 2, 3], [9])
    assert tokens(made, 1) == []
    made = drafter([1, 2, 3, 4, 5, 6, 2, 3, 9, 30, 1, 2, 3], [9])
    assert tokens(made, 1) == [30]


def test_chances_follow_what_came_even_if_nothing_was_verified() -> None:
    phrase = [1, 2, 3]
    believed, doubted = Drafter(100), Drafter(100)
    for made, next_token in ((believed, lambda n: 9), (doubted, lambda n: 100 + n)):
        for number in range(20):
            for token in (*phrase, next_token(number), 200 + number):
                made.add(token)
        made.extend([*phrase])
    assert believed.guesses(1)[0].chance > 0.8
    assert doubted.guesses(1)[0].chance < 0.15


@given(st.lists(st.integers(0, 3), max_size=60), st.lists(st.integers(0, 3), max_size=60))
def test_a_guess_stood_behind_a_match_or_repeats_one(prompt: list[int], answer: list[int]) -> None:
    made = drafter(prompt, answer)
    whole = [*prompt, *answer]
    guessed = tokens(made, 1)
    if guessed:
        end = whole[-GRAM:]
        behind = {whole[i + GRAM] for i in range(len(whole) - GRAM) if whole[i : i + GRAM] == end}
        assert guessed[0] in behind
