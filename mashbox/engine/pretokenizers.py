r"""How each byte-pair vocabulary cuts text into words before it merges, by the name a GGUF file gives it.

``tokenizer.ggml.pre`` holds the name. The names, and what goes with each, are those that llama.cpp's
``src/llama-vocab.cpp`` knows; the patterns are the ones the models' own tokenizers use (where llama.cpp
approximates one, say ``[^a-z]`` for "not lower case", the model's original stands here). They are
in Oniguruma's syntax, which the ``tokenizers`` library reads: ``&&`` intersects classes, ``++`` is
possessive.
"""

from dataclasses import dataclass, replace

from mashbox.errors import UnsupportedModel


@dataclass(frozen=True)
class PreTokenizer:
    """``patterns`` are applied one after the other, each cutting the pieces the one before left.

    What a pattern doesn't match stays a piece of its own. ``byte_level``: bytes are written as GPT-2's
    printable characters, else text stays as it is, with ``▁`` for spaces and ``<0xNN>`` for bytes.
    ``ignore_merges``: a word that is in the vocabulary is taken whole. ``add_bos``: the default where the
    file doesn't say.
    """

    patterns: tuple[str, ...]
    byte_level: bool = True
    ignore_merges: bool = False
    add_bos: bool = False


# GPT-2's own pattern: the library has it built in (and faster) as part of its byte-level step.
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACE = r"\s+(?!\S)|\s+"
_LINES = r"\s*[\r\n]+|" + _SPACE
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"


def _cased(lead: str, upper: str, lower: str, ending: str) -> str:
    """Words cut where lower case turns into upper: ``camelCase`` is two."""
    return f"{lead}{upper}*{lower}+{ending}|{lead}{upper}+{lower}*{ending}"


def _tiktoken(digits: str) -> str:
    return f"{_SHORT}|{_WORD}|{digits}|{_MARKS}|{_LINES}"


_GPT4O = (
    f"{_cased(_LEAD, _UPPER, _LOWER, _SHORT + '?')}|" + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _LINES
)
_CJK = "[一-龥\u3040-\u309f\u30a0-\u30ff]+"
_ASCII_MARK_WORD = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
_DEEPSEEK3_TEXT = _ASCII_MARK_WORD + r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + _LINES
# The letters with case of Unicode as DeepSeek's list of ranges has them: without Georgian's and Armenian's
# later additions, the phonetic extensions and the mathematical alphabets.
_DEEPSEEK_LETTERS = (
    r"\s?[\p{Lu}\p{Ll}\p{Lt}&&[^\u0560-\u0588\u10c7-\u10ff\u1c80-\u1c88\u2d00-\u2d2d\ua790-\ua7fa\uab30-\uab68"
    "\U00010570-\U000105bc\U00016e40-\U00016e7f\U0001d400-\U0001d7cb\U0001df00-\U0001df1e]]+"
)
_DEEPSEEK_CJK = "[一-龥\u0800-一가-\ud7ff]+"
_GROUPS_FROM_RIGHT = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
_NEWLINE_RUNS = r"[^\n]+|[\n]+"
_NOT_SENTENCE_MARKS = r" ?[^(\s|.,!?…。，、।۔،)]+"
_ASIAN = (
    "[一-鿿㐀-䶿豈-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff"
    "\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff가-\ud7af\u1100-\u11ff]+"
)

_GPT2 = PreTokenizer((GPT2_PATTERN,))
_LLAMA3 = PreTokenizer((_tiktoken(r"\p{N}{1,3}"),), ignore_merges=True, add_bos=True)
_QWEN2 = PreTokenizer((_tiktoken(r"\p{N}"),))
_DIGITS_ALONE = PreTokenizer((r"\p{N}", GPT2_PATTERN))
_DEEPSEEK3 = PreTokenizer((r"\p{N}{1,3}", _CJK, _DEEPSEEK3_TEXT))
_O200K = PreTokenizer((_GPT4O,))
_BLOOM = PreTokenizer((_NOT_SENTENCE_MARKS,))
_BAILING = PreTokenizer(
    (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|" + _SPACE,)
)
_TINY_AYA = PreTokenizer((r"\d{1,3}(?=(?:\d{3})*\b)", _GPT4O))
_WHOLE_LINES = PreTokenizer((_NEWLINE_RUNS,), byte_level=False, ignore_merges=True)

_NOT_HAN = r"&&[^\p{Han}]]"
_KIMI = PreTokenizer(
    (
        r"\p{Han}+|"
        + _cased(_LEAD, _UPPER[:-1] + _NOT_HAN, _LOWER[:-1] + _NOT_HAN, _SHORT + "?")
        + r"|\p{N}{1,3}|"
        + f"{_MARKS}|{_LINES}",
    )
)

# Vocabularies that give no name: llama.cpp's own fallback for files made before the name was written.
DEFAULT = PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", GPT2_PATTERN, r"\p{N}+", r"[0-9][0-9][0-9]"))

_TABLE: dict[str, PreTokenizer] = {
    "default": DEFAULT,
    "afmoe": PreTokenizer((_GROUPS_FROM_RIGHT, _ASIAN, _DEEPSEEK3_TEXT)),
    "chameleon": PreTokenizer(
        (
            r"<sentinel:[0-9]+>",
            r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
            r"([\t\n]|    |  )",
            r"\p{N}",
            r"[\p{P}!-/:-@\[-`{-~]",
            GPT2_PATTERN,
        ),
        add_bos=True,
    ),
    "deepseek-coder": PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}")),
    "deepseek-llm": PreTokenizer(
        (
            r"[\r\n]",
            _DEEPSEEK_LETTERS,
            "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+",
            r"\s+$",
            _DEEPSEEK_CJK,
            r"\p{N}+",
        )
    ),
    "exaone-moe": PreTokenizer(
        (
            _SHORT
            + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}|"
            + r" ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|"
            + _SPACE,
        )
    ),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", GPT2_PATTERN, r"[0-9][0-9][0-9]")),
    "glm4": replace(_LLAMA3, add_bos=False),
    "granite-embed-multi-97m": replace(_O200K, ignore_merges=True),
    "jais-2": PreTokenizer(
        (
            f"{_SHORT}|{_WORD}|"
            + r"\p{N}{1,3}|"
            + _MARKS
            + r"|\s*[\r\n]+|"
            + "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4))
            + r"|\s{1,2}(?!\S)|\s{1}",
        )
    ),
    "kimi-k2": _KIMI,
    "laguna": PreTokenizer((_NEWLINE_RUNS, _tiktoken(r"\p{N}"))),
    "minicpm5": PreTokenizer((r"\p{N}{1,3}", _tiktoken(r"\p{N}+")), ignore_merges=True),
    "qwen35": PreTokenizer(
        (_SHORT + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + _LINES,)
    ),
    "seed-coder": PreTokenizer((f"{_SHORT}|{_WORD}" + r"|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|" + _LINES,)),
    "spark2_5": PreTokenizer(
        (
            r"\p{N}{1,3}",
            _CJK,
            _ASCII_MARK_WORD + r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|" + _SPACE,
            r"\p{N}",
        )
    ),
    "superbpe": PreTokenizer((r"\p{N}+", _GROUPS_FROM_RIGHT)),
    "tekken": PreTokenizer(
        (f"{_cased(_LEAD, _UPPER, _LOWER, '')}|" + r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _LINES,),
        ignore_merges=True,
        add_bos=True,
    ),
    "ufakzeka": PreTokenizer((f"{_WORD}|" + r"\p{N}|" + f"{_MARKS}|{_LINES}",)),
    "viking": PreTokenizer((_NOT_SENTENCE_MARKS, r"\p{N}")),
    "youtu": PreTokenizer(
        (
            "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，\u3001-\u303f\ufe30-\ufe4f]+|[ㄅ-ㄯ]+|" + _CJK,
            f"{_cased(_LEAD, _UPPER, _LOWER, _SHORT + '?')}|" + r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _LINES,
        ),
        ignore_merges=True,
    ),
}


def _share(pre: PreTokenizer, *names: str) -> None:
    _TABLE.update(dict.fromkeys(names, pre))


_share(_GPT2, "gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4", "gigachat")
_share(_GPT2, "a.x-4.0", "mellum", "modern-bert", "roberta-bpe", "jina-es", "jina-de", "jina-v1-en")
_share(_GPT2, "jina-v2-es", "jina-v2-de", "jina-v2-code")
_share(_LLAMA3, "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2")
_share(_LLAMA3, "jina-v5-nano")
_share(replace(_LLAMA3, ignore_merges=False, add_bos=False), "dbrx", "smaug-bpe", "chatglm-bpe")
_share(_TABLE["glm4"], "glm5")
_share(_QWEN2, "qwen2", "stablelm2", "hunyuan", "solar-open", "deepseek-r1-qwen", "kormo", "f2llmv2")
_share(_QWEN2, "megrez", "grok-2")
_share(_DEEPSEEK3, "deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4")
_share(_DIGITS_ALONE, "starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b")
_share(_DIGITS_ALONE, "mellum2")
_share(_BLOOM, "bloom", "poro-chat", "gpt3-finnish")
_share(_O200K, "gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2")
_share(_TINY_AYA, "tiny_aya", "cohere2moe")
_share(_BAILING, "bailingmoe", "bailingmoe2", "llada-moe")
_share(_WHOLE_LINES, "gemma4", "granite-embed-multi-311m")
_share(replace(_WHOLE_LINES, ignore_merges=False), "sarvam-moe")


def pretokenizer(name: str) -> PreTokenizer:
    """The entry of that name; raises UnsupportedModel for one that is not in the table."""
    try:
        return _TABLE[name]
    except KeyError:
        raise UnsupportedModel(
            f"The model's pre-tokenizer {name!r} is not known, so its token ids would be wrong.",
            "Use a newer mashbox, or the model's safetensors files.",
        ) from None


def names() -> list[str]:
    """Every known name, sorted."""
    return sorted(_TABLE)
