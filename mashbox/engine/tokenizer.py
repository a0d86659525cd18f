"""A served model's tokenizer: text to ids and ids to bytes, loaded from a folder, without torch.

Control tokens (``<|im_end|>``) are found here rather than by the ``tokenizers`` library, since whether a
piece of text may become one depends on who wrote it: see :meth:`ModelTokenizer.encode_pieces`.
"""

import functools
import json
import secrets
import threading
from array import array
from collections import Counter, OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from mashbox.engine.borders import Cutter
from mashbox.engine.markers import Markers, without_surrogates
from mashbox.engine.template import ChatTemplate
from mashbox.engine.token_text import TokenBytes
from mashbox.engine.vocab_facts import END_TEXTS
from mashbox.errors import GET_ANEW, BadWeights, UnsupportedModel

# A text that stands for "something came before": encoded behind it, a piece gets no start-of-text space.
# No client can know and type it.
_BEFORE = f"\ue00f{secrets.token_hex(16)}"
_CACHE_MIN, _CACHE_MAX = 512, 4_000_000
_COUNT_MIN = 10_000


class ModelTokenizer:
    """Encodes prompts and decodes answers of one model. Safe to use from several threads.

    ``end_ids`` end an answer; ``bos_id`` is the model's first token (None if it has none), ``add_bos``
    whether prompts start with it; ``vocab_size`` counts every token the tokenizer knows, which may be
    fewer than the model has rows of logits.
    """

    def __init__(self, tokenizer: Tokenizer, config: dict[str, Any], templates: dict[str, str]) -> None:
        self._tokenizer = tokenizer
        self._config = config
        self.templates = {name: ChatTemplate(source) for name, source in templates.items()}
        added = tokenizer.get_added_tokens_decoder()
        control = {index: token for index, token in added.items() if self._is_marker(token)}
        tokenizer.add_special_tokens([_as_special(token) for token in control.values()])
        tokenizer.encode_special_tokens = True
        self.markers = Markers(control)
        self._first_piece_differs = _prepends_at_start(tokenizer)
        if self._first_piece_differs:
            tokenizer.add_tokens([AddedToken(_BEFORE, special=False, normalized=False)])
        self._bytes = TokenBytes(tokenizer, {index: token.content for index, token in added.items()})
        self.vocab_size = tokenizer.get_vocab_size(with_added_tokens=True) - self._first_piece_differs
        self.bos_id = self._id_of("bos_token")
        self.add_bos = self.bos_id is not None and _starts_with_bos(tokenizer, config, self.bos_id)
        self.end_ids = frozenset(self._end_ids())
        self._cache = _PieceCache(_CACHE_MAX)

    @classmethod
    def load(cls, folder: Path) -> "ModelTokenizer":
        """Read ``tokenizer.json``, ``tokenizer_config.json`` and the chat templates of a model's folder.

        Raises UnsupportedModel when there is only a SentencePiece file, or a kind of vocabulary whose
        tokens have no bytes of their own; BadWeights when a file is missing or damaged.
        """
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise _no_tokenizer(folder)
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:
            raise BadWeights(f"{path} can't be read: {error}", GET_ANEW) from error
        config = _read_json(folder / "tokenizer_config.json")
        generation = _read_json(folder / "generation_config.json")
        config.setdefault("generation_eos", generation.get("eos_token_id"))
        return cls(tokenizer, config, _read_templates(folder, config))

    def _is_marker(self, token: AddedToken) -> bool:
        """Special tokens, and other added ones that look like markers and that a chat template writes."""
        text = token.content
        looks = len(text) > 2 and text[0] in "<[" and text[-1] in ">]" and not text.isspace()
        # The templates are read only where it is for them to say.
        return bool(token.special) or (
            looks and any(text in each.literals for each in self.templates.values())
        )

    @property
    def chat_template(self) -> str | None:
        """The source of the model's main chat template, if it has one."""
        template = self.templates.get("default")
        return template.source if template else None

    @property
    def response_template(self) -> dict[str, Any] | None:
        """The model's own description of how it writes its answers, if it has one."""
        template = self._config.get("response_template")
        return template if isinstance(template, dict) else None

    @property
    def special_texts(self) -> dict[str, str]:
        """The texts of ``bos_token``, ``eos_token`` and their like, as chat templates use them."""
        names = ("bos_token", "eos_token", "unk_token", "pad_token")
        return {"bos_token": "", "eos_token": ""} | {
            name: text for name in names if (text := _token_text(self._config.get(name))) is not None
        }

    @property
    def adds_space(self) -> bool:
        """Whether the tokenizer puts a space before a text's first word, to be taken off an answer."""
        return self._bytes.adds_space

    def is_control(self, token: int) -> bool:
        """Whether the token is a marker (``<|im_end|>``, ``<think>``) rather than text."""
        return token in self.markers.texts

    def token_bytes(self, token: int) -> bytes:
        """The token's UTF-8 bytes (a marker's text); none for an id outside the vocabulary."""
        return self._bytes[token]

    def encode_text(self, text: str, *, specials: bool) -> list[int]:
        """Ids of a text. With ``specials``, of a raw prompt: markers typed in it are tokens, and it starts
        with BOS once where the model wants one. Without, of mere text."""
        if not specials:
            return self.encode_pieces([text])
        return self.with_bos(self.encode_pieces(self.markers.split(text)))

    def count_text(self, text: str) -> int:
        """How many ids :meth:`encode_text` gives for a raw prompt; of a long text, much sooner."""
        parts = self.markers.split(text)
        total = int(self.add_bos and parts[:1] != [self.bos_id])
        times: Counter[str] = Counter()
        for position, part in enumerate(parts):
            if isinstance(part, int):
                total += 1
            elif len(text) >= _COUNT_MIN and (cut := self._cutter.cut(without_surrogates(part))) is not None:
                times.update(cut)
            else:
                total += len(self._encode_safely(part, first=position == 0))
        encoded = self._tokenizer.encode_batch_fast(list(times), add_special_tokens=False)
        if not all(self.markers.texts.keys().isdisjoint(one.ids) for one in encoded):
            return len(self.encode_text(text, specials=True))
        return total + sum(len(one) * count for one, count in zip(encoded, times.values(), strict=True))

    @functools.cached_property
    def _cutter(self) -> Cutter:
        return Cutter(self._tokenizer)

    @functools.cached_property
    def longest_token(self) -> int:
        """Characters of the vocabulary's longest token: no text of that many is less than one token."""
        return max(map(len, self._tokenizer.get_vocab(with_added_tokens=True)))

    def with_bos(self, ids: list[int]) -> list[int]:
        """The ids with the model's BOS in front, if it wants one and it isn't there."""
        if not self.add_bos or ids[:1] == [self.bos_id]:
            return ids
        return [self.bos_id, *ids] if self.bos_id is not None else ids

    def encode_pieces(self, pieces: Sequence[str | int]) -> list[int]:
        """Ids of a prompt cut into texts and control tokens: no text ever becomes a control token."""
        ids: list[int] = []
        for position, piece in enumerate(pieces):
            if isinstance(piece, int):
                ids.append(piece)
            elif piece:
                ids += self._encode_piece(piece, first=position == 0)
        return ids

    def _encode_piece(self, text: str, *, first: bool) -> list[int]:
        if len(text) < _CACHE_MIN:
            return self._encode_safely(text, first=first)
        key = (text, first)
        held = self._cache.get(key)
        if held is not None:
            return held.tolist()
        ids = self._encode_safely(text, first=first)
        self._cache.put(key, array("i", ids))
        return ids

    def _encode_safely(self, text: str, *, first: bool) -> list[int]:
        ids = self._encode(text, first=first)
        if self.markers.texts.keys().isdisjoint(ids):
            return ids
        # The vocabulary makes a marker from plain letters: cut every marker's text so that none is whole.
        ids = []
        for position, part in enumerate(self.markers.broken(text)):
            ids += self._encode(part, first=first and position == 0)
        return ids

    def _encode(self, text: str, *, first: bool) -> list[int]:
        """Ids of a text in which nothing is a control token, BOS and the like left out."""
        behind = self._first_piece_differs and not first
        text = without_surrogates(f"{_BEFORE}{text}" if behind else text)
        # A batch of one: unlike ``encode`` it leaves other threads the interpreter's lock, so that a long
        # prompt does not hold up the server's loop, and it works out no offsets.
        ids: list[int] = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids[1:] if behind else ids

    def _id_of(self, role: str) -> int | None:
        text = _token_text(self._config.get(role))
        return None if text is None else self._tokenizer.token_to_id(text)

    def _end_ids(self) -> list[int]:
        """The file's own list; else the generation settings', EOS, and control tokens known by their text."""
        if "end_ids" in self._config:
            return [int(index) for index in self._config["end_ids"]]
        named = self._config.get("generation_eos")
        ends = set(named) if isinstance(named, list) else {named}
        ends.add(self._id_of("eos_token"))
        ends |= {index for index, text in self.markers.texts.items() if text in (*END_TEXTS, "</s>")}
        if {"<|end|>", "<|return|>", "<|call|>"} <= set(self.markers.texts.values()):
            ends.discard(self._tokenizer.token_to_id("<|end|>"))
        return sorted(index for index in ends if index is not None)


class _PieceCache:
    """Ids of long texts by the text, for conversations that come again at every turn.

    Holds texts of up to ``limit`` characters in all; the ones not used for longest go first.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0
        self._entries: OrderedDict[tuple[str, bool], array[int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, bool]) -> "array[int] | None":
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def put(self, key: tuple[str, bool], ids: "array[int]") -> None:
        with self._lock:
            if key in self._entries or len(key[0]) > self._limit:
                return
            self._entries[key] = ids
            self._held += len(key[0])
            while self._held > self._limit:
                oldest, _ = self._entries.popitem(last=False)
                self._held -= len(oldest[0])


def _no_tokenizer(folder: Path) -> Exception:
    if (folder / "tokenizer.model").is_file():
        return UnsupportedModel(
            f"{folder} has a SentencePiece tokenizer.model but no tokenizer.json.",
            "Pull a repository that has tokenizer.json, or the model as GGUF.",
        )
    return BadWeights(f"{folder} has no tokenizer.json.", GET_ANEW)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadWeights(f"{path} can't be read: {error}", GET_ANEW) from error
    return value if isinstance(value, dict) else {}


def _read_templates(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """Sources by name; the main one is ``default``. Files win over what the configuration holds."""
    held = config.get("chat_template") or _read_json(folder / "chat_template.json").get("chat_template")
    templates: dict[str, str] = {}
    if isinstance(held, str):
        templates["default"] = held
    elif isinstance(held, list):
        templates.update({entry["name"]: entry["template"] for entry in held})
    main = folder / "chat_template.jinja"
    if main.is_file():
        templates["default"] = main.read_text(encoding="utf-8")
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        templates[path.stem] = path.read_text(encoding="utf-8")
    return templates


def _token_text(value: Any) -> str | None:
    """A token of the configuration, which is its text or an object that holds it."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _as_special(token: AddedToken) -> AddedToken:
    return AddedToken(
        token.content, lstrip=token.lstrip, rstrip=token.rstrip, normalized=token.normalized, special=True
    )


def _prepends_at_start(tokenizer: Tokenizer) -> bool:
    """Whether only a text's very first word gets a space before it (Metaspace's scheme "first")."""
    return '"prepend_scheme":"first"' in _state(tokenizer.pre_tokenizer)


def _state(part: Any) -> str:
    return "" if part is None else part.__getstate__().decode()


def _starts_with_bos(tokenizer: Tokenizer, config: dict[str, Any], bos_id: int) -> bool:
    ids = tokenizer.encode("", add_special_tokens=True).ids
    says = config.get("add_bos_token")
    return says if isinstance(says, bool) else ids[:1] == [bos_id]
