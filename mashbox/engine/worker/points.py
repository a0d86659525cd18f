"""State points: where in a prompt the state that can't be cut is saved, and which of them are kept.

A recurrent model's keys and values can be cut to any length, its states can't. So states are saved at chosen
lengths while a prompt is read, and a later prompt is taken up at the longest of those that it begins with.
"""

from collections.abc import Collection, Sequence

SHORTEST = 32
"""Tokens that are read again faster than a state is worth keeping: for a point's length, and between two."""

TAIL = 16
"""Where the last point lies, counted from a prompt's end. The next turn of a conversation differs from this
prompt where its generation prompt begins (a role's header, the start of a thought: 2 to 8 tokens), the same
prompt again at its last token; a few tokens read once more cost nothing beside those that are new."""

GRID = 1024
"""Tokens between points where nothing is known, for edits in the middle."""

MOST = 16
"""Points along one sequence."""


def places(start: int, fork: int, total: int) -> list[int]:
    """Ascending lengths at which a prompt of ``total`` tokens, ``start`` of them read, gets its points.

    ``fork`` is how much of it others began with too: what else begins so will part there again.
    """
    last = total - TAIL
    known = {start}
    if start + SHORTEST <= fork < last:
        known.add(fork)
    if last - max(known) >= SHORTEST:
        known.add(last)
    grid = range(start - start % GRID + GRID, last, GRID)
    between = {at for at in grid if min(abs(at - other) for other in known) >= GRID // 4}
    # Where nothing is far enough from the start to read up to, the start will do.
    chosen = between | (known - {start} or known)
    return sorted(at for at in chosen if at >= SHORTEST)


def least_missed(lengths: Sequence[int], forks: Collection[int] = ()) -> int:
    """Which of the ascending ``lengths`` (two or more) to do without; never the last.

    The one that leaves the smallest gap for its distance from the end: forks are likelier near the end, and
    the cost of reading a gap again weighs less beside a long way that is read anyway. Those among ``forks``
    go when no other is left: a system prompt that several conversations share lies far from their ends.
    """

    def gap(index: int) -> tuple[bool, float]:
        before = lengths[index - 1] if index else 0
        return lengths[index] in forks, (lengths[index + 1] - before) / (lengths[-1] - before)

    return min(range(len(lengths) - 1), key=gap)
