"""The exact runner against ``generate()`` of the same modules, and against the runners' contract."""

import functools
import logging
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
import torch

from mashbox.engine.worker.architectures import PROVEN
from mashbox.engine.worker.exact import ExactRunner
from mashbox.engine.worker.load.model import LoadedModel, build_empty, fill
from mashbox.errors import DoesNotFit, UnsupportedModel
from tests.engine.worker.contract import CTX, SLOTS, RunnerContract, greedy, prompt, read, same_tokens
from tests.engine.worker.oracle import generate
from tests.engine.worker.tiny import SPECIAL, random_weights, tiny_config, tiny_model
from tests.marks import QUICK, slow_but

ENGINE = "exact"
TOKENS = 8
PROMPTS = [prompt(5), prompt(37), prompt(1), prompt(70)]
PLACES = [4, 0, 5, 2]


@functools.cache
def model_and_reference(model_type: str) -> tuple[LoadedModel, list[list[int]]]:
    loaded = tiny_model(model_type)
    wanted = [generate(loaded.module, ids, TOKENS) for ids in PROMPTS]
    # A model that repeats itself would prove nothing.
    assert max(len(set(tokens)) for tokens in wanted) >= 5
    return loaded, wanted


def runner_over(loaded: LoadedModel, slots: int = SLOTS, ctx: int = CTX) -> ExactRunner:
    return ExactRunner(loaded, slots=slots, ctx=ctx)


def test_every_proven_type_is_tested() -> None:
    assert set(SPECIAL) == PROVEN


@pytest.mark.parametrize("model_type", slow_but([*QUICK, "deepseek_v3", "mamba2"], sorted(SPECIAL)))
class TestGreedyEqualsGenerate:
    def test_alone(self, model_type: str) -> None:
        loaded, wanted = model_and_reference(model_type)
        runner = runner_over(loaded, slots=1)
        found = [greedy(runner, [ids], [0], TOKENS, CTX)[0] for ids in PROMPTS]
        same_tokens(ENGINE, found, wanted)

    @pytest.mark.parametrize("chunk", [7, 64])
    def test_four_rows_of_different_lengths(self, model_type: str, chunk: int) -> None:
        loaded, wanted = model_and_reference(model_type)
        same_tokens(ENGINE, greedy(runner_over(loaded), PROMPTS, PLACES, TOKENS, chunk), wanted)

    def test_token_by_token(self, model_type: str) -> None:
        loaded, wanted = model_and_reference(model_type)
        same_tokens(ENGINE, greedy(runner_over(loaded), PROMPTS[1:2], [3], TOKENS, 1), wanted[1:2])


class TestContract(RunnerContract):
    engine: ClassVar[str] = ENGINE
    model_types: ClassVar[Sequence[str]] = [
        "llama",
        "gemma3_text",
        "deepseek_v3",
        "lfm2",
        "mamba2",
        "qwen3_5_text",
    ]

    @staticmethod
    def make(loaded: LoadedModel, slots: int, ctx: int) -> ExactRunner:
        return runner_over(loaded, slots, ctx)


def test_kv_bytes_are_those_of_all_slots() -> None:
    loaded = tiny_model("llama")
    # 4 layers, keys and values, 2 heads of 16, float32.
    assert runner_over(loaded, 3, 100).kv_bytes == 3 * 100 * 4 * 2 * 2 * 16 * 4
    hybrid = tiny_model("qwen3_5_text")
    # 2 layers each: as above; and inputs of a convolution [2*2*16 + 4*16, 4] with a state [4, 16, 16].
    assert runner_over(hybrid, 3, 100).kv_bytes == 3 * 4 * (
        100 * 2 * 2 * 2 * 16 + 2 * (128 * 4 + 4 * 16 * 16)
    )


def test_weight_bytes_count_tied_weights_once() -> None:
    loaded = tiny_model("llama")
    values = sum(t.numel() for t in random_weights(build_empty(loaded.config, torch.float32), 0).values())
    buffers = sum(b.numel() for b in loaded.module.buffers())
    assert loaded.weight_bytes == 4 * (values + buffers)


def test_bfloat16_equals_generate() -> None:
    loaded = tiny_model("qwen3", dtype=torch.bfloat16)
    wanted = generate(loaded.module, PROMPTS[1], 8)
    runner = runner_over(loaded)
    same_tokens(ENGINE, greedy(runner, [PROMPTS[1]], [0], 8, CTX), [wanted])
    assert runner.kv_bytes * 2 == runner_over(tiny_model("qwen3")).kv_bytes


def test_recurrent_states_cannot_be_cut() -> None:
    runner = runner_over(tiny_model("qwen3_next"))
    read(runner, 0, prompt(10))
    assert not runner.truncate(0, 9)
    assert runner.length(0) == 10


def test_only_chosen_experts_are_read() -> None:
    loaded = _random_model("qwen3_moe", num_experts=32, num_local_experts=32)
    experts = [layer.mlp.experts for layer in loaded.module.model.layers]
    chosen: list[set[int]] = [set() for _ in experts]
    hooks = [
        module.register_forward_pre_hook(
            lambda _m, given, seen=seen: seen.update(given[1].flatten().tolist())
        )
        for module, seen in zip(experts, chosen, strict=True)
    ]
    runner = runner_over(loaded)
    for seen in chosen:
        seen.clear()
    wanted = greedy(runner, [PROMPTS[0]], [0], 4)
    for hook, module, seen in zip(hooks, experts, chosen, strict=True):
        hook.remove()
        spare = sorted(set(range(32)) - seen)
        assert spare
        module.gate_up_proj.data[spare] = float("nan")
        module.down_proj.data[spare] = float("nan")
    same_tokens(ENGINE, greedy(runner, [PROMPTS[0]], [0], 4), wanted)


def test_stale_and_foreign_memory_is_never_read() -> None:
    for model_type in ("llama", "gemma3_text", "gpt_oss", "qwen3_5_text", "deepseek_v3"):
        loaded, wanted = model_and_reference(model_type)
        runner = runner_over(loaded)
        cache = runner._cache
        for pool in [*cache._keys.values(), *cache._values.values(), *cache._pools.values()]:
            pool.fill_(float("nan"))
        same_tokens(ENGINE, greedy(runner, PROMPTS, PLACES, TOKENS, 7), wanted)


def test_nan_is_not_hidden_and_stays_in_its_row() -> None:
    loaded = tiny_model("llama")
    runner = runner_over(loaded)
    for slot in (0, 1):
        read(runner, slot, prompt(9))
    clean = runner.decode([1], [5])
    runner.truncate(1, 9)
    runner._cache._values[1][0, :, 4] = float("nan")
    both = runner.decode([0, 1], [5, 5])
    assert both[0].isnan().all()
    torch.testing.assert_close(both[1], clean[0], rtol=1e-4, atol=1e-3)


def test_a_failed_pass_leaves_its_slots_empty_and_others_as_they_were() -> None:
    loaded = tiny_model("qwen3_5_text")
    runner = runner_over(loaded)
    for slot in range(3):
        read(runner, slot, prompt(9 + slot))

    def fail(*_: object) -> None:
        raise RuntimeError("device lost")

    handle = loaded.module.model.layers[2].register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="device lost"):
        runner.decode([0, 1], [4, 4])
    handle.remove()
    assert [runner.length(slot) for slot in range(3)] == [0, 0, 11]
    runner.copy(2, 3)
    assert torch.equal(runner.decode([2], [4]), runner.decode([3], [4]))
    assert read(runner, 0, prompt(9)) == read(runner, 4, prompt(9))


def test_logits_are_computed_only_where_asked() -> None:
    loaded = tiny_model("llama")
    runner = runner_over(loaded)
    seen: list[torch.Size] = []
    loaded.module.lm_head.register_forward_hook(lambda _m, given, _o: seen.append(given[0].shape))
    runner.prefill(0, prompt(20), logits=False)
    assert seen == []
    runner.prefill(0, prompt(20), logits=True)
    assert [shape[:2] for shape in seen] == [(1, 1)]


def _random_model(model_type: str, **changes: Any) -> LoadedModel:
    config = tiny_config(model_type, **changes)
    module = build_empty(config, torch.float32)
    size = fill(module, random_weights(module, 0).items(), torch.float32)
    return LoadedModel(module, config, model_type, size, torch.float32)


LONG_ROPE = {
    "original_max_position_embeddings": 32,
    "max_position_embeddings": 512,
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": [1.0] * 8,
        "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0],
        "original_max_position_embeddings": 32,
    },
}


def test_frequencies_of_the_short_context_equal_generate() -> None:
    loaded = _random_model("phi3", **LONG_ROPE)
    wanted = generate(loaded.module, PROMPTS[0], 20)
    same_tokens(ENGINE, greedy(runner_over(loaded, 2, 32), [PROMPTS[0]], [1], 20), [wanted])


@pytest.mark.parametrize("kind", ["longrope", "dynamic"])
def test_frequencies_do_not_depend_on_other_rows_or_pieces(kind: str) -> None:
    changes: dict[str, Any] = LONG_ROPE
    model_type = "phi3"
    if kind == "dynamic":
        rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
        changes = {"rope_parameters": rope, "max_position_embeddings": 32}
        model_type = "llama"
    loaded = _random_model(model_type, **changes)
    long = PROMPTS[3]
    wanted = generate(loaded.module, long, 8)
    alone = [greedy(runner_over(loaded), [ids], [0], 8, CTX)[0] for ids in PROMPTS]
    if kind == "longrope":
        # All of a prompt beyond the length of pretraining is turned by the long set, there as here.
        same_tokens(ENGINE, alone[3], wanted)
    same_tokens(ENGINE, greedy(runner_over(loaded), PROMPTS, PLACES, 8, 7), alone)


def test_more_slots_than_memory() -> None:
    with pytest.raises(DoesNotFit, match="1000000 slots"):
        runner_over(tiny_model("llama"), 1_000_000, 1_000_000_000)


def test_an_unproven_type_that_agrees_with_itself_runs_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        runner = runner_over(_random_model("nanochat"))
    assert "nanochat" in caplog.text
    assert runner.length(0) == 0


def test_an_unproven_type_that_differs_is_refused() -> None:
    loaded = _random_model("zamba", num_hidden_layers=2, layers_block_type=["mamba", "hybrid"])
    with pytest.raises(UnsupportedModel, match="zamba"):
        runner_over(loaded)


def test_chunked_attention_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="fixed chunks"):
        runner_over(_random_model("llama4_text", attention_chunk_size=16))


@pytest.mark.parametrize("model_type", ["rwkv", "recurrent_gemma", "falcon"])
def test_types_that_cannot_run_are_refused_before_weights_are_read(model_type: str) -> None:
    with pytest.raises(UnsupportedModel, match=model_type):
        build_empty(tiny_config(model_type), torch.float32)
