"""Makes a tokenizer folder (``tokenizer.json`` and its neighbours) from a GGUF file's metadata.

The metadata's meaning is llama.cpp's (``src/llama-vocab.cpp``): the kinds of vocabulary, the defaults of
the special tokens, and which tokens end an answer. The written files are those of the ``tokenizers`` and
``transformers`` libraries; ``tokenizer_config.json`` carries ``end_ids`` besides.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mashbox.engine.pretokenizers import DEFAULT, GPT2_PATTERN, PreTokenizer, pretokenizer
from mashbox.engine.vocab_facts import CHANNEL_ENDS, END_TEXTS, FIM_END_TEXTS
from mashbox.errors import GET_ANEW, BadWeights, UnsupportedModel
from mashbox.gguf_file import GGUFFile

log = logging.getLogger(__name__)

# Values of tokenizer.ggml.token_type.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

_SPACE = "▁"
_SENTENCEPIECE_SPECIALS = {"bos": 1, "eos": 2, "unknown": 0}
_BYTE_LEVEL_DECODER = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}
_END_KEYS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")


def write_tokenizer(gguf: Path, out: Path) -> None:
    """Write ``tokenizer.json``, ``tokenizer_config.json`` and the chat templates into the folder ``out``.

    Raises UnsupportedModel for a kind of vocabulary or a pre-tokenizer that is not known, BadWeights when
    the metadata lack the vocabulary or contradict themselves.
    """
    write_from_metadata(GGUFFile(gguf).metadata, out)


def write_from_metadata(metadata: Mapping[str, Any], out: Path) -> None:
    """Like :func:`write_tokenizer`, from a file's metadata pairs."""
    vocabulary = GGUFVocabulary(metadata)
    out.mkdir(parents=True, exist_ok=True)
    _write_json(out / "tokenizer.json", vocabulary.tokenizer())
    _write_json(out / "tokenizer_config.json", vocabulary.config())
    _write_templates(metadata, out)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


def _write_templates(metadata: Mapping[str, Any], out: Path) -> None:
    prefix = "tokenizer.chat_template"
    for key, template in metadata.items():
        if key == prefix:
            (out / "chat_template.jinja").write_text(template, encoding="utf-8", newline="")
        elif key.startswith(f"{prefix}.") and key[len(prefix) + 1 :].isidentifier():
            folder = out / "additional_chat_templates"
            folder.mkdir(exist_ok=True)
            (folder / f"{key[len(prefix) + 1 :]}.jinja").write_text(template, encoding="utf-8", newline="")


class GGUFVocabulary:
    """The ``tokenizer.ggml.*`` keys of one file, and what the libraries' files say in their place."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.metadata = metadata
        self.model = self._get("model", "")
        if self.model not in ("gpt2", "llama", "gemma4"):
            raise UnsupportedModel(
                f"The model's tokenizer is of the kind {self.model!r}; mashbox reads gpt2, llama and gemma4.",
                "Use the model's safetensors files, if they come with a tokenizer.json.",
            )
        self.tokens = self._tokens()
        count = len(self.tokens)
        self.types = self._numbers("token_type", count) or [NORMAL] * count
        self.scores = self._numbers("scores", count)
        self.ids = {token: index for index, token in enumerate(self.tokens)}
        if len(self.ids) != count:
            raise BadWeights("The model's vocabulary lists a token twice.", GET_ANEW)
        self.pre = self._pre()
        self.special = self._special_ids()
        self.end_ids = self._end_ids()

    def _get(self, key: str, default: Any = None) -> Any:
        return self.metadata.get(f"tokenizer.ggml.{key}", default)

    def _tokens(self) -> list[str]:
        tokens = self._get("tokens")
        if tokens is None or not len(tokens):
            raise BadWeights("The model's metadata hold no vocabulary.", GET_ANEW)
        return [token or f"[EMPTY_{index}]" for index, token in enumerate(tokens)]

    def _numbers(self, key: str, count: int) -> list[Any]:
        values = self._get(key)
        if values is None or not len(values):
            return []
        if len(values) < count:
            raise BadWeights(f"The model's vocabulary has {count} tokens but {len(values)} of {key!r}.")
        return values.tolist() if hasattr(values, "tolist") else list(values)

    def _pre(self) -> PreTokenizer | None:
        if self.model == "llama":
            return None
        if self.model == "gemma4":
            return pretokenizer("gemma4")
        name = self._get("pre")
        if not name:
            log.warning(
                "The model names no pre-tokenizer; using the default one, which may cut words wrongly."
            )
            return DEFAULT
        return pretokenizer(name)

    def _special_ids(self) -> dict[str, int]:
        """Ids by role: bos, eos, unknown, padding, eot, eom, fim_pad ..."""
        ids = dict(_SENTENCEPIECE_SPECIALS) if self.model == "llama" else {}
        for role in ("bos", "eos", "unknown", "padding", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"):
            value = self._get(f"{role}_token_id")
            if value is not None and 0 <= int(value) < len(self.tokens):
                ids[role] = int(value)
        return {role: index for role, index in ids.items() if index < len(self.tokens)}

    def _end_ids(self) -> list[int]:
        ends = {self.special[role] for role in _END_KEYS if role in self.special}
        for role, texts in FIM_END_TEXTS.items():
            if role not in self.special:
                ends.update([self.ids[text] for text in texts if text in self.ids][:1])
        ends.update(self.ids[text] for text in END_TEXTS if text in self.ids)
        if (strike := self.ids.get("</s>")) is not None and self.types[strike] == CONTROL:
            ends.add(strike)
        named = {self.tokens[index] for index in ends}
        if any(others <= named for others in CHANNEL_ENDS):
            named.discard("<|end|>")
        return sorted(self.ids[text] for text in named)

    @property
    def add_bos(self) -> bool:
        """Whether a prompt starts with the model's first token."""
        if self.model == "gemma4" or self._get("pre") in ("gemma4", "granite-embed-multi-311m"):
            return "bos" in self.special
        default = self.model == "llama" or (self.pre is not None and self.pre.add_bos)
        return bool(self._get("add_bos_token", default)) and "bos" in self.special

    @property
    def add_space_prefix(self) -> bool:
        """Whether text after a special token, or at the start, gets a space before it."""
        return self.model == "llama" and bool(self._get("add_space_prefix", True))

    def config(self) -> dict[str, Any]:
        """``tokenizer_config.json``."""
        names = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
        texts = {name: text for role, name in names.items() if (text := self._text(role)) is not None}
        return {
            **texts,
            "add_bos_token": self.add_bos,
            "add_prefix_space": self.add_space_prefix,
            "clean_up_tokenization_spaces": False,
            "tokenizer_class": "PreTrainedTokenizerFast",
            "end_ids": self.end_ids,
        }

    def tokenizer(self) -> dict[str, Any]:
        """``tokenizer.json``."""
        byte_level = self.pre is not None and self.pre.byte_level
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": self._added_tokens(),
            "normalizer": None if byte_level else self._spaces_normalizer(),
            "pre_tokenizer": None if self.pre is None else pre_tokenizer_json(self.pre),
            "post_processor": self._post_processor(),
            "decoder": _BYTE_LEVEL_DECODER if byte_level else self._spaces_decoder(),
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None if byte_level else self._text("unknown"),
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": not byte_level,
                "byte_fallback": not byte_level,
                "ignore_merges": self.pre is not None and self.pre.ignore_merges,
                "vocab": self.ids,
                "merges": self._merges(),
            },
        }

    def _added_tokens(self) -> list[dict[str, Any]]:
        """Control tokens are special; user-defined ones are only cut out before all else.

        Phi-3's special tokens swallow the white space behind them, which its file doesn't say.
        """
        phi3 = any(name in str(self.metadata.get("general.name", "")).lower() for name in ("phi-3", "phi3"))
        ends = set(self.end_ids)
        added = []
        for index, kind in enumerate(self.types):
            special = kind in (CONTROL, UNKNOWN) or index in ends
            if special or kind == USER_DEFINED:
                text = self.tokens[index]
                strips = phi3 and text not in ("<unk>", "<s>", "<|endoftext|>")
                flags = {"single_word": False, "lstrip": False, "rstrip": strips, "normalized": False}
                added.append({"id": index, "content": text, **flags, "special": special})
        return added

    def _spaces_normalizer(self) -> dict[str, Any]:
        steps: list[dict[str, Any]] = []
        if self.add_space_prefix:
            steps.append({"type": "Prepend", "prepend": _SPACE})
        steps.append({"type": "Replace", "pattern": {"String": " "}, "content": _SPACE})
        return {"type": "Sequence", "normalizers": steps}

    def _spaces_decoder(self) -> dict[str, Any]:
        steps: list[dict[str, Any]] = [
            {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ]
        if self.add_space_prefix:
            steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
        return {"type": "Sequence", "decoders": steps}

    def _post_processor(self) -> dict[str, Any] | None:
        if not self.add_bos:
            return None
        bos = self.special["bos"]
        text = self.tokens[bos]
        first = {"SpecialToken": {"id": text, "type_id": 0}}
        one, two = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
        return {
            "type": "TemplateProcessing",
            "single": [first, one],
            "pair": [first, one, first, two],
            "special_tokens": {text: {"id": text, "ids": [bos], "tokens": [text]}},
        }

    def _text(self, role: str) -> str | None:
        return self.tokens[self.special[role]] if role in self.special else None

    def _merges(self) -> list[list[str]]:
        if self.model == "llama":
            return merges_from_scores(self.tokens, self.types, self.scores)
        merges = self._get("merges")
        if merges is None:
            raise BadWeights("The model's metadata hold no merges for its byte-pair vocabulary.")
        pairs = []
        for merge in merges:
            # A merge's left side may itself be a space, where spaces are not written as ▁ or Ġ.
            cut = merge.find(" ", 1)
            left, right = merge[:cut], merge[cut + 1 :]
            if cut > 0 and left in self.ids and right in self.ids and left + right in self.ids:
                pairs.append([left, right])
        return pairs


def merges_from_scores(
    tokens: Sequence[str], types: Sequence[int], scores: Sequence[float]
) -> list[list[str]]:
    """The merges of a SentencePiece byte-pair vocabulary, best first.

    SentencePiece joins whichever two neighbours make the token of the highest score. So every way to cut
    a token into two that can occur is a merge, ranked by the token's score. Only normal tokens take part: the
    text of a control token never becomes that token by merging.
    """
    usable = [index for index, kind in enumerate(types) if kind == NORMAL]
    known = {tokens[index] for index in usable}
    usable.sort(key=lambda index: -scores[index] if scores else index)
    merges = []
    for index in usable:
        token = tokens[index]
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in known and right in known:
                merges.append([left, right])
    return merges


def pre_tokenizer_json(pre: PreTokenizer) -> dict[str, Any]:
    """The ``pre_tokenizer`` of a ``tokenizer.json``."""
    patterns = list(pre.patterns)
    builtin = pre.byte_level and patterns[-1] == GPT2_PATTERN
    if builtin:
        patterns.pop()
    steps: list[dict[str, Any]] = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in patterns
    ]
    if pre.byte_level:
        steps.append(
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": builtin}
        )
    return {"type": "Sequence", "pretokenizers": steps}
