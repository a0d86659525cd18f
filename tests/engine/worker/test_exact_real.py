"""The exact runner on real files: the starter's chat prompts and a sliding-window base model's text."""

from pathlib import Path

import pytest
import torch

from mashbox.engine.gguf_tokenizer import write_tokenizer
from mashbox.engine.prompt import encode
from mashbox.engine.request import Conversation
from mashbox.engine.tokenizer import ModelTokenizer
from mashbox.engine.worker.exact import ExactRunner
from mashbox.engine.worker.load.gguf import load_gguf
from tests.engine.worker.contract import greedy, read, same_tokens
from tests.engine.worker.oracle import generate

pytestmark = pytest.mark.real

ENGINE = "exact"
TOKENS = 64
PLANETS = "Name three planets."
CHATS = [
    PLANETS,
    "Write a short letter to a friend who has just moved to the sea, and ask about the gulls.",
    "What is 17 + 25?",
]
TEXTS = [
    "The history of the lighthouse begins",
    "In 1969,",
    "def fibonacci(n):\n    ",
]


class Real:
    """A loaded file, its prompts as ids, and what ``generate()`` answers to them."""

    def __init__(self, path: Path, folder: Path, prompts: list[Conversation | str]) -> None:
        write_tokenizer(path, folder)
        self.tokenizer = ModelTokenizer.load(folder)
        self.loaded = load_gguf(path, torch.float32, lambda *_: None)
        self.prompts = [encode(self.tokenizer, prompt).ids for prompt in prompts]
        self.wanted = [generate(self.loaded.module, ids, TOKENS) for ids in self.prompts]

    def runner(self, slots: int) -> ExactRunner:
        return ExactRunner(self.loaded, slots=slots, ctx=256)


@pytest.fixture(scope="module")
def starter(starter_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Real:
    chats: list[Conversation | str] = [
        Conversation(messages=[{"role": "user", "content": text}]) for text in CHATS
    ]
    return Real(starter_gguf, tmp_path_factory.mktemp("starter"), chats)


@pytest.fixture(scope="module")
def gemma(gemma_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Real:
    return Real(gemma_gguf, tmp_path_factory.mktemp("gemma"), [*TEXTS])


@pytest.fixture(params=["starter", "gemma"])
def real(request: pytest.FixtureRequest) -> Real:
    found: Real = request.getfixturevalue(request.param)
    return found


def test_alone(real: Real) -> None:
    runner = real.runner(1)
    found = [greedy(runner, [ids], [0], TOKENS, 256)[0] for ids in real.prompts]
    same_tokens(ENGINE, found, real.wanted)


def test_four_rows_of_different_lengths(real: Real) -> None:
    # The fourth is the first with a piece of its own answer, so that all four lengths differ.
    prompts = [*real.prompts, real.prompts[0] + real.wanted[0][:9]]
    assert len({len(ids) for ids in prompts}) == 4
    found = greedy(real.runner(5), prompts, [4, 0, 3, 1], TOKENS, 256)
    same_tokens(ENGINE, found[:3], real.wanted)
    same_tokens(ENGINE, found[3][: TOKENS - 9], real.wanted[0][9:])


def test_prompt_in_pieces(real: Real) -> None:
    runner = real.runner(3)
    ids, wanted = real.prompts[0], real.wanted[0]
    answers = [[read(runner, slot, ids, chunk)] for slot, chunk in enumerate((1, 7, 64))]
    for _ in range(TOKENS - 1):
        logits = runner.decode([0, 1, 2], [answer[-1] for answer in answers])
        for answer, token in zip(answers, logits.argmax(-1).tolist(), strict=True):
            answer.append(token)
    same_tokens(ENGINE, answers, [wanted] * 3)


def test_three_planets(starter: Real) -> None:
    answer = greedy(starter.runner(1), starter.prompts[:1], [0], 20)[0]
    end = next(index for index, token in enumerate(answer) if token in starter.tokenizer.end_ids)
    text = b"".join(starter.tokenizer.token_bytes(token) for token in answer[:end]).decode()
    assert [line.strip() for line in text.splitlines()] == ["1. Mars", "2. Venus", "3. Earth"]
