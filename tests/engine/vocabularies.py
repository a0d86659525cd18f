"""Small vocabularies as a GGUF file's metadata, and tokenizers made from them."""

from pathlib import Path
from typing import Any

from mashbox.engine.gguf_tokenizer import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, write_from_metadata
from mashbox.engine.token_text import byte_letters
from mashbox.engine.tokenizer import ModelTokenizer

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_level(
    merges: tuple[str, ...] = ("h e", "l l", "he ll", "hell o", "Ġ w", "o r"),
    control: tuple[str, ...] = ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    user_defined: tuple[str, ...] = ("<think>", "</think>"),
    template: str | None = CHATML,
    **keys: Any,
) -> dict[str, Any]:
    """A GPT-2-like vocabulary: control tokens, user-defined ones, the 256 bytes, the merges' results."""
    learnt = [merge.replace(" ", "") for merge in merges]
    tokens = [*control, *user_defined, *byte_letters(), *learnt]
    kinds = [CONTROL] * len(control) + [USER_DEFINED] * len(user_defined)
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds + [NORMAL] * (len(tokens) - len(kinds)),
        "tokenizer.ggml.merges": list(merges),
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": len(control) - 1,
    }
    if template is not None:
        metadata["tokenizer.chat_template"] = template
    return metadata | {f"tokenizer.ggml.{key}": value for key, value in keys.items()}


def sentencepiece(
    words: tuple[str, ...] = ("▁h", "he", "ll", "▁hell", "▁hello", "lo", "▁w", "or", "▁wor"),
    control: tuple[str, ...] = ("<s>", "</s>", "<turn>"),
    template: str | None = None,
    **keys: Any,
) -> dict[str, Any]:
    """A Llama-2-like vocabulary: unknown, control, bytes, letters and words with scores."""
    letters = tuple("▁abcdefghijklmnopqrstuvwxyz.")
    tokens = ["<unk>", *control, *(f"<0x{byte:02X}>" for byte in range(256)), *letters, *words]
    kinds = [UNKNOWN] + [CONTROL] * len(control) + [BYTE] * 256 + [NORMAL] * (len(letters) + len(words))
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.scores": [0.0] * (1 + len(control) + 256)
        + [-float(i) for i in range(len(letters + words))],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    if template is not None:
        metadata["tokenizer.chat_template"] = template
    return metadata | {f"tokenizer.ggml.{key}": value for key, value in keys.items()}


def tokenizer(metadata: dict[str, Any], folder: Path) -> ModelTokenizer:
    """The tokenizer that these metadata make, by way of its files."""
    write_from_metadata(metadata, folder)
    return ModelTokenizer.load(folder)
