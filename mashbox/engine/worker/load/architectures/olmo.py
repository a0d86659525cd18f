"""OLMo 2 and 3: norms behind each block, over all heads of queries and keys."""

from mashbox.engine.worker.load.architectures.base import Architecture
from mashbox.engine.worker.load.gguf_config import Fields, decoder, sliding_layers
from mashbox.engine.worker.load.gguf_names import ATTENTION, HEAD, MLP, QK_NORM, Config, Rules, rename
from mashbox.gguf_keys import Keys


def _config(keys: Keys) -> tuple[str, Fields]:
    fields = decoder(keys)
    if not keys.whole("attention.sliding_window", 0):
        return "olmo2", fields
    rope = fields["rope_parameters"]
    local = {"rope_type": "default", "rope_theta": rope["rope_theta"]}
    return "olmo3", fields | {
        "rope_parameters": {"full_attention": rope, "sliding_attention": local},
        "sliding_window": keys.whole("attention.sliding_window"),
        "layer_types": sliding_layers(keys, 4),
    }


def _rules(config: Config) -> Rules:
    behind = {
        "post_attention_layernorm": "post_attention_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    }
    return {**HEAD, **ATTENTION, **MLP, **QK_NORM, **rename(behind)}


OLMO2 = Architecture(_config, _rules)
