"""Building an empty module and filling it with named tensors."""

import pytest
import torch

from mashbox.engine.worker.load.model import build_empty, fill, memory_bytes
from mashbox.errors import BadWeights, UnsupportedModel
from tests.engine.worker.tiny import random_weights, tiny_config

F32 = torch.float32


def test_an_empty_module_takes_no_memory() -> None:
    module = build_empty(tiny_config("qwen3_next"), F32)
    assert all(p.is_meta for p in module.parameters())
    assert not module.training


def test_tensors_are_taken_over_without_a_copy() -> None:
    module = build_empty(tiny_config("qwen3"), F32)
    weights = random_weights(module, 0)
    fill(module, weights.items(), F32)
    state = module.state_dict()
    assert all(state[name].data_ptr() == tensor.data_ptr() for name, tensor in weights.items())
    assert not any(p.requires_grad for p in module.parameters())


def test_parameters_take_the_dtype_and_pinned_ones_and_buffers_keep_theirs() -> None:
    module = build_empty(tiny_config("deepseek_v3"), torch.bfloat16)
    weights = {name: value.float() for name, value in random_weights(module, 0).items()}
    fill(module, weights.items(), torch.bfloat16)
    pinned = {name for name, p in module.named_parameters() if p.dtype != torch.bfloat16}
    assert pinned == {f"model.layers.{layer}.mlp.gate.weight" for layer in (1, 2, 3)}
    assert {module.get_parameter(name).dtype for name in pinned} == {torch.float32}
    bias = module.get_buffer("model.layers.1.mlp.gate.e_score_correction_bias")
    assert bias.dtype == torch.float32


@pytest.mark.parametrize("given", ["model.embed_tokens.weight", "lm_head.weight"])
def test_a_tied_pair_given_under_either_name(given: str) -> None:
    module = build_empty(tiny_config("llama"), F32)
    weights = random_weights(module, 0)
    table = weights.pop("model.embed_tokens.weight")
    size = fill(module, {**weights, given: table}.items(), F32)
    assert module.lm_head.weight is module.model.embed_tokens.weight
    assert torch.equal(module.lm_head.weight, table)
    assert (
        size
        == memory_bytes(module)
        == 4
        * (
            table.numel()
            + sum(t.numel() for t in weights.values())
            + sum(b.numel() for b in module.buffers())
        )
    )


def test_a_tied_pair_with_two_values_stays_apart() -> None:
    module = build_empty(tiny_config("llama"), F32)
    weights = random_weights(module, 0)
    head = torch.ones_like(weights["model.embed_tokens.weight"])
    fill(module, {**weights, "lm_head.weight": head}.items(), F32)
    assert torch.equal(module.lm_head.weight, head)
    assert torch.equal(module.model.embed_tokens.weight, weights["model.embed_tokens.weight"])


def test_buffers_that_no_file_holds_are_computed() -> None:
    module = build_empty(tiny_config("gemma3_text"), F32)
    fill(module, random_weights(module, 0).items(), F32)
    buffers = dict(module.named_buffers())
    assert float(buffers["model.embed_tokens.embed_scale"]) == 8.0
    full = buffers["model.rotary_emb.full_attention_inv_freq"]
    torch.testing.assert_close(full, 1_000_000.0 ** -(torch.arange(0, 16, 2) / 16))
    local = buffers["model.rotary_emb.sliding_attention_inv_freq"]
    torch.testing.assert_close(local, 10_000.0 ** -(torch.arange(0, 16, 2) / 16))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("model.norm.weight", None, "lack.*model.norm.weight"),
        ("model.norm.weight", torch.ones(65), r"model.norm.weight.*\[65\].*\[64\]"),
        ("model.norm.bias", torch.ones(64), "model.norm.bias.*no place"),
        ("model.nothing.weight", torch.ones(64), "model.nothing.weight.*no place"),
    ],
)
def test_wrong_tensors_are_named(name: str, value: torch.Tensor | None, words: str) -> None:
    module = build_empty(tiny_config("qwen3"), F32)
    weights: dict[str, torch.Tensor | None] = {**random_weights(module, 0), name: value}
    given = [(name, tensor) for name, tensor in weights.items() if tensor is not None]
    with pytest.raises(BadWeights, match=words):
        fill(module, given, F32)


def test_a_tensor_given_twice_is_named() -> None:
    module = build_empty(tiny_config("qwen3"), F32)
    weights = [*random_weights(module, 0).items(), ("model.norm.weight", torch.ones(64))]
    with pytest.raises(BadWeights, match=r"model\.norm\.weight.*twice"):
        fill(module, weights, F32)


def test_a_type_without_a_language_model_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="vit"):
        build_empty(tiny_config("vit"), F32)
