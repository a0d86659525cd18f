"""Phi 3 and 4: fused projections, long contexts by two tables of rotary factors."""

from mashbox.engine.worker.load.architectures.base import Architecture
from mashbox.engine.worker.load.gguf_config import Fields, decoder
from mashbox.engine.worker.load.gguf_names import DECODER, Config, Rules, rename
from mashbox.gguf_keys import Keys

LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"


def _config(keys: Keys) -> tuple[str, Fields]:
    fields = decoder(keys)
    trained = keys.whole("rope.scaling.original_context_length", fields["max_position_embeddings"])
    rope = fields["rope_parameters"]
    if keys.has(LONG):
        rope |= {
            "rope_type": "longrope",
            "long_factor": keys.file.data(LONG).tolist(),
            "short_factor": keys.file.data(SHORT).tolist(),
            "factor": fields["max_position_embeddings"] / trained,
            "original_max_position_embeddings": trained,
        }
        if "rope.scaling.attn_factor" in keys:
            rope["attention_factor"] = keys.number("rope.scaling.attn_factor")
    return "phi3", fields | {
        "original_max_position_embeddings": trained,
        "sliding_window": keys.whole("attention.sliding_window", 0) or None,
    }


def _rules(config: Config) -> Rules:
    return {**DECODER, **rename({"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"})}


PHI3 = Architecture(_config, _rules, unused=(LONG, SHORT))
