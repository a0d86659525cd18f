"""The fast runner on the real starter, against the exact one: probabilities and greedy answers."""

from pathlib import Path

import pytest
import torch

from mashbox.engine.gguf_tokenizer import write_tokenizer
from mashbox.engine.tokenizer import ModelTokenizer
from mashbox.engine.worker.exact import ExactRunner
from mashbox.engine.worker.fast import FastRunner
from mashbox.engine.worker.load.gguf import load_gguf
from mashbox.engine.worker.load.packed import load_packed
from mashbox.engine.worker.load.rotary import rotary_tables
from tests.engine.worker.kernels.tensors import TensorRunner

pytestmark = pytest.mark.real

TEXT = (
    "The lighthouse was built in 1841 by engineers from the mainland. Its lamp could be seen for twenty "
    "miles, and its keeper wrote down every ship that passed. In the winter of that year, three ships"
)
CTX = 256


@pytest.fixture(scope="module")
def ids(starter_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    folder = tmp_path_factory.mktemp("starter")
    write_tokenizer(starter_gguf, folder)
    return ModelTokenizer.load(folder).encode_text(TEXT, specials=False)


@pytest.fixture(scope="module")
def exact(starter_gguf: Path) -> ExactRunner:
    return ExactRunner(load_gguf(starter_gguf, torch.float32, lambda *_: None), slots=2, ctx=CTX)


@pytest.fixture(scope="module")
def fast(starter_gguf: Path) -> FastRunner:
    decoder, shape, _ = load_packed(starter_gguf, lambda *_: None)
    return TensorRunner(decoder, rotary_tables(shape, CTX), slots=5, ctx=CTX, threads=2)


def test_probabilities_are_those_of_the_exact_runner(
    exact: ExactRunner, fast: FastRunner, ids: list[int]
) -> None:
    rows = []
    for runner in (exact, fast):
        runner.reset(0)
        runner.prefill(0, ids[:1], logits=False)
        rows.append(torch.cat([runner.decode([0], [token]) for token in ids[1:]]).log_softmax(-1))
    wanted, found = rows
    divergence = (wanted.exp() * (wanted - found)).sum(-1)
    assert divergence.mean() < 1e-5
    assert divergence.max() < 1e-4
    assert torch.equal(wanted.argmax(-1), found.argmax(-1))


def test_greedy_answers_are_those_of_the_exact_runner(
    exact: ExactRunner, fast: FastRunner, ids: list[int]
) -> None:
    answers = []
    for runner in (exact, fast):
        runner.reset(0)
        logits = runner.prefill(0, ids, logits=True)
        assert logits is not None
        answer = [int(logits.argmax())]
        for _ in range(39):
            answer.append(int(runner.decode([0], answer[-1:]).argmax()))
        answers.append(answer)
    assert len(set(answers[0])) > 10
    assert answers[1] == answers[0]


def test_rows_and_pieces_give_the_same_bits(fast: FastRunner, ids: list[int]) -> None:
    lengths = [len(ids), 20, 33, 7]
    alone = []
    for length in lengths:
        fast.reset(4)
        fast.prefill(4, ids[:length], logits=False)
        alone.append(fast.decode([4], [28])[0])
    for slot, length in enumerate(lengths):
        fast.reset(slot)
        for first in range(0, length, 9):
            fast.prefill(slot, ids[first : min(first + 9, length)], logits=False)
    together = fast.decode([2, 0, 3, 1], [28] * 4)
    for row, slot in enumerate([2, 0, 3, 1]):
        assert torch.equal(together[row], alone[slot])
