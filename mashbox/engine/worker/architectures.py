"""Which model types of transformers run over slots: proven, refused with a reason, or to be checked.

Proven means that the tests hold greedy output over slots equal to ``generate()`` for the type: alone, in a
batch of different lengths, and with the prompt in pieces. Every other type is checked against its own plain
forward pass when it is loaded (:mod:`mashbox.engine.worker.selfcheck`) and comes with a warning.
"""

from transformers import PretrainedConfig

from mashbox.errors import UnsupportedModel

PROVEN = frozenset(
    {
        "apertus",
        "arcee",
        "bamba",
        "cohere",
        "cohere2",
        "deepseek_v2",
        "deepseek_v3",
        "dots1",
        "ernie4_5",
        "ernie4_5_moe",
        "exaone4",
        "falcon_h1",
        "falcon_mamba",
        "gemma",
        "gemma2",
        "gemma3_text",
        "gemma4_text",
        "glm",
        "glm4",
        "glm4_moe",
        "glm4_moe_lite",
        "gpt_oss",
        "granite",
        "granitemoe",
        "granitemoehybrid",
        "granitemoeshared",
        "hunyuan_v1_dense",
        "hunyuan_v1_moe",
        "lfm2",
        "lfm2_moe",
        "llama",
        "mamba",
        "mamba2",
        "minimax_m2",
        "ministral",
        "ministral3",
        "mistral",
        "mixtral",
        "nemotron",
        "nemotron_h",
        "olmo",
        "olmo2",
        "olmo3",
        "olmo_hybrid",
        "olmoe",
        "phi",
        "phi3",
        "phimoe",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_moe",
        "qwen3_next",
        "seed_oss",
        "smollm3",
        "stablelm",
        "starcoder2",
    }
)

_OWN_STATE = "keeps its state in a form of its own, outside the cache"
_CHOOSES_KEYS = "chooses the keys that a token sees with an index of its own"
_PLACE_IN_SCORES = "writes positions into the attention scores"
_REFUSED = {
    "bloom": _PLACE_IN_SCORES,
    "deepseek_v32": _CHOOSES_KEYS,
    "deepseek_v4": _CHOOSES_KEYS,
    "falcon": _PLACE_IN_SCORES,
    "glm_moe_dsa": _CHOOSES_KEYS,
    "minimax": _OWN_STATE,
    "mpt": _PLACE_IN_SCORES,
    "recurrent_gemma": _OWN_STATE,
    "rwkv": _OWN_STATE,
    "xlstm": _OWN_STATE,
}

_FROM_THE_START = frozenset({"falcon_mamba", "mamba"})
"""Types whose scan over several tokens begins from an empty state, whatever the cache holds."""


def check_supported(config: PretrainedConfig) -> None:
    """Raise UnsupportedModel, before anything is read, for a type that is known not to run."""
    model_type = str(config.model_type)
    if model_type in _REFUSED:
        raise UnsupportedModel(
            f"Models of type {model_type!r} can't be run: this one {_REFUSED[model_type]}."
        )
    if getattr(config, "is_encoder_decoder", False) or not getattr(config, "is_causal", True):
        raise UnsupportedModel(f"Models of type {model_type!r} can't be run: it is not a causal decoder.")


def proven(model_type: str) -> bool:
    """Whether the tests hold this type."""
    return model_type in PROVEN


def continues(model_type: str) -> bool:
    """Whether a piece of several tokens can be read behind others; if not, they are read one by one."""
    return model_type not in _FROM_THE_START
