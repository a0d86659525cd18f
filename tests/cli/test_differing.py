"""A model that the fast engine does not compute closely enough: `mashbox run` finds that out, and serves it
by the exact one.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from mashbox.engine.worker.load.model import build_empty, fill
from tests.engine.vocabularies import byte_level
from tests.engine.worker.load.gguf_writer import ARCHITECTURES, tensors_of, write_tensors
from tests.engine.worker.tiny import random_weights, tiny_config
from tests.patience import PATIENCE
from tests.real_server import Server, serving


def outlying(path: Path) -> Path:
    """A Llama where one channel of each 32, once normed, is a million times the others, and read by nothing.

    The 16 bits of a group of activations are taken up by that channel, so that nothing is left of the others.
    """
    words = byte_level()
    vocab_size = len(words["tokenizer.ggml.tokens"])
    config = tiny_config("llama", vocab_size=vocab_size, tie_word_embeddings=False)
    module: Any = build_empty(config, torch.float32)
    fill(module, random_weights(module, 0).items(), torch.float32)
    with torch.no_grad():
        for layer in module.model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            layer.input_layernorm.weight[::32] = layer.post_attention_layernorm.weight[::32] = 1e6
            for reader in (attention.q_proj, attention.k_proj, attention.v_proj, mlp.gate_proj, mlp.up_proj):
                reader.weight[:, ::32] = 0.0
    architecture, change = ARCHITECTURES["llama"]
    tensors = tensors_of(module, config, architecture, change)
    write_tensors(path, config, tensors, metadata=words, quant="Q8_0")
    return path


def answer(server: Server) -> Any:
    response = server.post("/v1/completions", {"prompt": "hello", "max_tokens": 8, "temperature": 0})
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["text"]


@pytest.mark.slow
def test_a_model_that_differs_is_served_by_the_exact_engine(tmp_path: Path) -> None:
    model = outlying(tmp_path / "outlying.gguf")
    told, found_at = [], []
    for run in range(2):
        log = tmp_path / f"{run}.log"
        with serving(tmp_path / "home", log, "--ctx", "64", "--slots", "2", model=str(model)) as server:
            health = server.health()
            assert health["engine"] == "exact" and "differs from transformers' own" in health["engine_why"]
            found = answer(server)
            told.append((health["engine_why"], found))
        (record,) = (tmp_path / "home" / "state" / "agreements").glob("*.json")
        found_at.append(record.stat().st_mtime_ns)
    assert told[0] == told[1]
    assert found_at[0] == found_at[1]  # Only the first start compares.
    with serving(tmp_path / "home", log, "--engine", "exact", "--ctx", "64", model=str(model)) as server:
        assert answer(server) == found
    refused = Server(tmp_path / "home", log, "--engine", "fast", model=str(model))
    assert refused.process.wait(PATIENCE) == 1
    assert "differs from transformers' own" in log.read_text() and "Traceback" not in log.read_text()
