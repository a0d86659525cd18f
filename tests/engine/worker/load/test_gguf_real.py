"""Real GGUF files load, and what they say is sensible."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from mashbox.engine.worker.load.gguf import load_gguf
from mashbox.engine.worker.load.model import LoadedModel
from mashbox.gguf_file import GGUFFile

pytestmark = pytest.mark.real


def load(path: Path) -> LoadedModel:
    return load_gguf(path, torch.float32, lambda stage, done, total: None)


def continued(model: LoadedModel, path: Path, pieces: list[str], count: int) -> str:
    """The greedy continuation of a prompt given as the vocabulary's own pieces."""
    tokens = GGUFFile(path).metadata["tokenizer.ggml.tokens"]
    ids = torch.tensor([[tokens.index(piece) for piece in pieces]])
    with torch.inference_mode():
        out = model.module.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False
        )
    return "".join(tokens[token] for token in out[0, len(pieces) :].tolist())


SYSTEM = "You Ġare Ġa Ġhelpful ĠAI Ġassistant Ġnamed ĠSm ol LM , Ġtrained Ġby ĠH ugging ĠFace"
TURN = ["<|im_end|>", "Ċ", "<|im_start|>"]


def test_the_starter_names_three_planets(starter_gguf: Path) -> None:
    load(starter_gguf)  # the imports of transformers' module are no part of loading
    start = time.process_time()  # other work on the machine does not count
    model = load(starter_gguf)
    assert time.process_time() - start < 10
    assert model.weight_bytes < 4 * 134_515_008 + 10_000
    system = ["<|im_start|>", "system", "Ċ", *SYSTEM.split(" ")]
    user = [*TURN, "user", "Ċ", "Name", "Ġthree", "Ġplanets", "."]
    answer = continued(model, starter_gguf, [*system, *user, *TURN, "ass", "istant", "Ċ"], 14)
    assert answer == "1.ĠMarsĊ2.ĠVenusĊ3.ĠEarth<|im_end|>"


MEASURE = """
import resource, sys, torch
from pathlib import Path
from mashbox.engine.worker.load.gguf import load_gguf
from transformers.models.llama import modeling_llama
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
before = peak()
model = load_gguf(Path(sys.argv[1]), torch.float32, lambda stage, done, total: None)
print((peak() - before) / model.weight_bytes)
"""


def test_weights_are_in_memory_once(starter_gguf: Path) -> None:
    command = [sys.executable, "-c", MEASURE, str(starter_gguf)]
    result = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    # The file itself, mapped, is a fifth of the unpacked weights.
    assert float(result.stdout) < 1.45


def test_gemma_knows_its_capitals(gemma_gguf: Path) -> None:
    text = continued(load(gemma_gguf), gemma_gguf, ["<bos>", "The", "▁capital", "▁of", "▁France", "▁is"], 10)
    assert text == "▁the▁capital▁of▁the▁country▁of▁France.▁It▁is"
