"""Every decoder that the fast engine runs, from a GGUF file, against the exact engine; what is refused."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mashbox.engine.worker.build import build_runner
from mashbox.engine.worker.exact import ExactRunner
from mashbox.engine.worker.fast import FastRunner
from mashbox.engine.worker.kernels.cpu import Instructions, instructions_here
from mashbox.engine.worker.load.gguf import load_gguf
from mashbox.engine.worker.load.model import build_empty
from mashbox.engine.worker.load.rotary import rotary_tables
from mashbox.engine.worker.load.shapes import FAMILIES, shape_of
from mashbox.engine.worker.rope import fix_frequencies
from mashbox.errors import UsageError
from tests.engine.worker.contract import prompt
from tests.engine.worker.kernels.packing import decoder_of
from tests.engine.worker.kernels.tensors import TensorRunner, tensor
from tests.engine.worker.kernels.test_packed import start, written
from tests.engine.worker.tiny import WINDOW, tiny_config, tiny_model

# What a file can't say, or what llama.cpp takes for granted, differs from the tiny models' defaults.
CHANGES: dict[str, dict[str, Any]] = {
    "exaone4": {"sliding_window_pattern": 2},
    "gemma2": {"query_pre_attn_scalar": 16, "tie_word_embeddings": True, "attn_logit_softcapping": 0.05},
    "gemma3_text": {"query_pre_attn_scalar": 16},
    "glm4": {"head_dim": 32},
    "mistral": {"head_dim": 16, "sliding_window": None},
    "qwen2": {"use_sliding_window": False},
    "smollm3": {"no_rope_layers": None, "no_rope_layer_interval": 4},
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 4.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "original_max_position_embeddings": 128,
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"attention_bias": True, "mlp_bias": True}),
    # Heads of sizes that vectors don't take: with biases, norms, halves and neighbours, a part turned, fused.
    ("llama", {"head_dim": 24, "attention_bias": True}),
    ("qwen2", {"num_attention_heads": 8, "num_key_value_heads": 8}),
    ("qwen3", {"head_dim": 40}),
    ("olmo2", {"num_attention_heads": 8}),
    ("ernie4_5", {"head_dim": 24}),
    ("glm4", {"head_dim": 24}),
    ("phi3", {"num_attention_heads": 8}),
    ("gemma3_text", {"final_logit_softcapping": 30.0, "num_key_value_heads": 1}),
    ("qwen3", {"head_dim": 32, "rope_parameters": YARN}),
    ("phi3", {"head_dim": 32, "num_attention_heads": 2, "sliding_window": None}),
    (
        "gemma3_text",
        {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            }
        },
    ),
]
RUN = sorted(FAMILIES)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)


@pytest.mark.parametrize(("model_type", "changes"), [*((name, {}) for name in RUN), *VARIANTS])
def test_logits_are_those_of_the_exact_runner(
    tmp_path: Path, model_type: str, changes: dict[str, Any]
) -> None:
    changes = CHANGES.get(model_type, {}) | changes
    path = written(tmp_path / "model.gguf", "Q8_0", model_type, **changes)
    runner, built = build_runner(start(path), lambda *_: None)
    assert (built.engine, isinstance(runner, FastRunner)) == ("fast", True)
    exact = ExactRunner(load_gguf(path, torch.float32, lambda *_: None), slots=2, ctx=96)
    for seed in range(3):
        # Longer than the windows, so that what they leave out shows.
        ids = prompt(40 + seed, seed=seed)
        for each in (exact, runner):
            each.reset(1)
            each.prefill(1, ids, logits=False)
        wanted, found = (tensor(each.decode([1], [5])[0]) for each in (exact, runner))
        # A wrong order, norm, window or scale is off by a good part of the logits' own size.
        torch.testing.assert_close(found, wanted, rtol=0, atol=0.02 * float(wanted.abs().max()))


@pytest.mark.parametrize("model_type", ["gemma2", "gemma3_text", "olmo2", "phi3", "qwen2", "granite"])
def test_any_batch_threads_pieces_and_instructions_give_the_same_bits(model_type: str) -> None:
    decoder, shape = decoder_of(tiny_model(model_type))
    tables = rotary_tables(shape, 128)
    ids = prompt(90)

    def logits(threads: int, sizes: list[int], others: int, instructions: int | None = None) -> torch.Tensor:
        runner = TensorRunner(decoder, tables, slots=4, ctx=128, threads=threads, instructions=instructions)
        first = 0
        for size in sizes:
            runner.prefill(1, ids[first : first + size], logits=False)
            first += size
        for slot in range(2, 2 + others):
            runner.prefill(slot, prompt(9 * slot), logits=False)
        rows = [*range(2, 2 + others), 1]
        return runner.decode(rows, [7] * len(rows))[-1]

    alone = logits(1, [90], 0)
    assert torch.equal(logits(3, [90], 2), alone)
    assert torch.equal(logits(2, [1] * 5 + [17] * 5, 1), alone)
    for other in instructions_here()[:-1]:
        # Plain C++ rounds twice where a vector instruction multiplies and adds in one.
        if other != Instructions.PLAIN:
            assert torch.equal(logits(1, [90], 0, instructions=other), alone)


def spoil_keys(runner: FastRunner, layer: int, positions: Iterable[int]) -> None:
    at = np.array(list(positions))
    runner._cache.tiles(layer)[0][:, at // 8, :, at % 8] = float("nan")


def test_what_lies_outside_of_a_window_is_not_read() -> None:
    decoder, shape = decoder_of(tiny_model("gemma3_text"))
    runner = TensorRunner(decoder, rotary_tables(shape, 96), slots=1, ctx=96, threads=1)
    runner.prefill(0, prompt(60), logits=False)
    wanted = runner.decode([0], [5])
    runner.truncate(0, 60)
    windowed = [layer for layer, window in enumerate(shape.windows) if window]
    assert windowed and len(windowed) < shape.layers
    for layer in windowed:
        spoil_keys(runner, layer, range(60 + 1 - WINDOW))
        runner._cache._values[layer][0, :, : 60 + 1 - WINDOW] = float("nan")
    assert torch.equal(runner.decode([0], [5]), wanted)
    spoil_keys(runner, windowed[0], [61 - WINDOW])
    runner.truncate(0, 60)
    assert runner.decode([0], [5]).isnan().any()


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "default", "rope_theta": 5e5},
        {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
        {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
        YARN,
        {
            "rope_type": "llama3",
            "rope_theta": 5e5,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        {
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "factor": 4.0,
            "short_factor": [1.0] * 8,
            "long_factor": [float(n) for n in range(1, 9)],
            "original_max_position_embeddings": 128,
        },
    ],
)
@pytest.mark.parametrize("ctx", [100, 500])
def test_rotary_tables_are_those_of_transformers(rope: dict[str, Any], ctx: int) -> None:
    config = tiny_config("llama", rope_parameters=rope)
    shape = shape_of("llama", config.to_dict())
    module = tiny_model("llama").module.model.rotary_emb.__class__(config)
    fix_frequencies(module, ctx)
    wanted = module(torch.zeros(1), torch.arange(ctx).unsqueeze(0))
    for found, table in zip(rotary_tables(shape, ctx)["all"], wanted, strict=True):
        torch.testing.assert_close(tensor(found), table[0, :, :8], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("model_type", "changes", "why"),
    [
        ("llama", {"hidden_act": "gelu"}, "gelu"),
        ("llama", {"head_dim": 24, "rope_parameters": {"partial_rotary_factor": 0.125}}, "3 numbers .* odd"),
        ("llama", {"intermediate_size": 100}, "100"),
        ("llama", {"num_key_value_heads": 3}, "evenly"),
        ("qwen3_moe", {}, "qwen3_moe"),
        ("qwen3", {"layer_types": ["linear_attention"] * 4}, "linear_attention"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(model_type: str, changes: dict[str, Any], why: str) -> None:
    fields = tiny_config(model_type).to_dict() | changes
    with pytest.raises(UsageError, match=why) as caught:
        shape_of(model_type, fields)
    assert "--engine exact" in str(caught.value.remedy)


def test_each_type_has_a_module() -> None:
    for model_type in FAMILIES:
        assert build_empty(tiny_config(model_type), torch.float32)
