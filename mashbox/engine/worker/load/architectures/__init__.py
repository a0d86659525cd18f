"""The GGUF architectures that can be loaded, by the name their files give."""

from mashbox.engine.worker.load.architectures.base import Architecture
from mashbox.engine.worker.load.architectures.deepseek import DEEPSEEK2
from mashbox.engine.worker.load.architectures.delta_net import QWEN3_NEXT, QWEN35, QWEN35_MOE
from mashbox.engine.worker.load.architectures.gemma import GEMMA, GEMMA2, GEMMA3
from mashbox.engine.worker.load.architectures.gemma4 import GEMMA4
from mashbox.engine.worker.load.architectures.glm import GLM4, GLM4_MOE
from mashbox.engine.worker.load.architectures.gpt_oss import GPT_OSS
from mashbox.engine.worker.load.architectures.granite import GRANITE, GRANITE_HYBRID, GRANITE_MOE
from mashbox.engine.worker.load.architectures.lfm2 import LFM2, LFM2_MOE
from mashbox.engine.worker.load.architectures.llama import LLAMA, MISTRAL3, SMOLLM3
from mashbox.engine.worker.load.architectures.olmo import EXAONE4, OLMO2, OLMOE
from mashbox.engine.worker.load.architectures.phi import PHI3
from mashbox.engine.worker.load.architectures.plain import (
    COHERE2,
    ERNIE4_5,
    HUNYUAN_DENSE,
    MINIMAX_M2,
    SEED_OSS,
)
from mashbox.engine.worker.load.architectures.qwen import QWEN2, QWEN2_MOE, QWEN3, QWEN3_MOE
from mashbox.errors import UnsupportedModel
from mashbox.gguf_file import GGUFFile

ARCHITECTURES: dict[str, Architecture] = {
    "cohere2": COHERE2,
    "deepseek2": DEEPSEEK2,
    "ernie4_5": ERNIE4_5,
    "exaone4": EXAONE4,
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3": GEMMA3,
    "gemma4": GEMMA4,
    "glm4": GLM4,
    "glm4moe": GLM4_MOE,
    "gpt-oss": GPT_OSS,
    "granite": GRANITE,
    "granitehybrid": GRANITE_HYBRID,
    "granitemoe": GRANITE_MOE,
    "hunyuan-dense": HUNYUAN_DENSE,
    "lfm2": LFM2,
    "lfm2moe": LFM2_MOE,
    "llama": LLAMA,
    "minimax-m2": MINIMAX_M2,
    "mistral3": MISTRAL3,
    "olmo2": OLMO2,
    "olmoe": OLMOE,
    "phi3": PHI3,
    "qwen2": QWEN2,
    "qwen2moe": QWEN2_MOE,
    "qwen3": QWEN3,
    "qwen35": QWEN35,
    "qwen35moe": QWEN35_MOE,
    "qwen3moe": QWEN3_MOE,
    "qwen3next": QWEN3_NEXT,
    "seed_oss": SEED_OSS,
    "smollm3": SMOLLM3,
    # Of models that read images too the file holds the text part; positions in text are the plain ones.
    "qwen2vl": QWEN2,
    "qwen3vl": QWEN3,
    "qwen3vlmoe": QWEN3_MOE,
}


def find_architecture(file: GGUFFile) -> Architecture:
    """The architecture of a file; UnsupportedModel, with the list of those that work, if it is not known."""
    found = ARCHITECTURES.get(file.architecture)
    if found is None:
        raise UnsupportedModel(
            f"{file.paths[0]}: GGUF models of the architecture {file.architecture!r} can't be served.",
            f"These can: {', '.join(sorted(ARCHITECTURES))}.",
        )
    return found


__all__ = ["ARCHITECTURES", "Architecture", "find_architecture"]
