"""Gemma 1 to 3: norms kept with one added; sliding windows and norms around each block since the second."""

from mashbox.engine.worker.load.architectures.base import Architecture
from mashbox.engine.worker.load.gguf_config import Fields, decoder, sliding_layers
from mashbox.engine.worker.load.gguf_names import ATTENTION, HEAD, MLP, Config, Rules, rename, without_one
from mashbox.gguf_keys import Keys

NORMS = rename(
    {
        ".norm": "output_norm",
        "input_layernorm": "attn_norm",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    },
    values=without_one,
)


def _rules(config: Config) -> Rules:
    return {**HEAD, **ATTENTION, **MLP, **NORMS}


def _fields(keys: Keys, period: int, wide: int) -> Fields:
    """``wide`` is the number of layers of the one size whose queries are scaled by its width a head."""
    fields = decoder(keys)
    heads = fields["num_attention_heads"]
    scalar = fields["hidden_size"] // heads if keys.layers == wide else fields["head_dim"]
    windowed = bool(keys.whole("attention.sliding_window", 0))
    return fields | {
        "query_pre_attn_scalar": scalar,
        "sliding_window": keys.whole("attention.sliding_window", 4096),
        "layer_types": sliding_layers(keys, period) if windowed else ["full_attention"] * keys.layers,
    }


def _gemma(keys: Keys) -> tuple[str, Fields]:
    return "gemma", decoder(keys)


def _gemma_rules(config: Config) -> Rules:
    before_mlp = rename({"post_attention_layernorm": "ffn_norm"}, values=without_one)
    return {**_rules(config), **before_mlp}


def _gemma2(keys: Keys) -> tuple[str, Fields]:
    return "gemma2", _fields(keys, 2, 46) | {
        "attn_logit_softcapping": keys.number("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": keys.number("final_logit_softcapping", 30.0),
    }


def _gemma3(keys: Keys) -> tuple[str, Fields]:
    fields = _fields(keys, 6, 62)
    local = {"rope_type": "default", "rope_theta": keys.number("rope.freq_base_swa", 10000.0)}
    fields["rope_parameters"] = {"full_attention": fields["rope_parameters"], "sliding_attention": local}
    if "final_logit_softcapping" in keys:
        fields["final_logit_softcapping"] = keys.number("final_logit_softcapping")
    return "gemma3_text", fields


GEMMA = Architecture(_gemma, _gemma_rules)
GEMMA2 = Architecture(_gemma2, _rules)
GEMMA3 = Architecture(_gemma3, _rules)
