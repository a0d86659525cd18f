"""Tiny models, whole enough to be pulled: a GGUF with a byte-pair vocabulary, and safetensors."""

import json
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from safetensors.numpy import save

TOKENS = ["<|endoftext|>", "a", "b", "c", "ab", "abc"]
MERGES = ["a b", "ab c"]
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def tiny_gguf(folder: Path, seed: int = 0, numbers: int = 100_000) -> bytes:
    """A GGUF of one tensor with ``numbers`` random values of four bytes; ``seed`` makes it another one."""
    path = folder / f"tiny-{seed}.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 1, 1, 1, 1, 1])
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(0)
    writer.add_chat_template(TEMPLATE)
    values = np.random.default_rng(seed).standard_normal(numbers).astype(np.float32)
    writer.add_tensor("token_embd.weight", values.reshape(-1, 10))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def tiny_split(folder: Path) -> dict[str, bytes]:
    """A GGUF of three tensors, split into three files."""
    writer = GGUFWriter(folder / "split-Q4_0.gguf", "llama", split_max_tensors=1)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_merges(MERGES)
    for number in range(3):
        writer.add_tensor(f"blk.{number}.attn_q.weight", np.full((2, 32), number, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {path.name: path.read_bytes() for path in sorted(folder.glob("split-*.gguf"))}


def tiny_safetensors(shards: int = 1) -> dict[str, bytes]:
    """The files of a checkpoint in the transformers format, and some that a pull must leave alone."""
    tokenizer = {"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}
    files = {
        "config.json": json.dumps({"model_type": "llama"}).encode(),
        "tokenizer.json": json.dumps(tokenizer).encode(),
        "tokenizer_config.json": b"{}",
        "chat_template.jinja": TEMPLATE.encode(),
        "modeling_tiny.py": b"raise SystemExit",
        "pytorch_model.bin": b"pickle",
        "original/consolidated.safetensors": save({"x": np.zeros(2, np.float32)}),
        "README.md": b"# Tiny",
    }
    if shards == 1:
        return {**files, "model.safetensors": save({"w": np.arange(1000, dtype=np.float32)})}
    names = [f"model-{n:05}-of-{shards:05}.safetensors" for n in range(1, shards + 1)]
    for number, name in enumerate(names):
        files[name] = save({f"w{number}": np.full(100, number, np.float32)})
    index = {"metadata": {}, "weight_map": {f"w{number}": name for number, name in enumerate(names)}}
    return {**files, "model.safetensors.index.json": json.dumps(index).encode()}
