"""How a module's parameters lie in a GGUF file: names, and the layouts that llama.cpp's converter changed.

A :class:`Rule` says for one parameter which tensors of the file hold it, and, through a function of the
parameter that returns strided views, where in it their numbers go. Undoing a permutation, a split or a
transposition is then only a matter of naming the right view, and nothing is held in memory twice.

The facts of each architecture are in ``architectures``; their source is llama.cpp's ``conversion`` folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Config = Any
"""A transformers configuration; its fields differ by architecture."""

Places = Callable[["Tensor", Config], Sequence[Sequence["Tensor"]]]
"""The views of a parameter that each source's rows fill, in the sources' order.

The fast engine, which does without torch, hands in numpy's arrays: what a model that it runs needs keeps to
methods that both have.
"""


def whole(target: Tensor, config: Config) -> Sequence[Sequence[Tensor]]:
    """The parameter lies in the file as it is."""
    return ((target,),)


@dataclass(frozen=True, slots=True)
class Rule:
    """Where one parameter comes from. ``#`` in names is the layer's number.

    ``values`` maps the file's numbers (float32) to the parameter's. ``other`` is how files keep the
    parameter that do not have the sources.
    """

    sources: tuple[str, ...]
    places: Places = whole
    values: Callable[[Tensor], Tensor] | None = None
    other: Rule | None = None

    def of_layer(self, number: str) -> Rule:
        """The same with a layer's number filled in."""
        sources = tuple(source.replace("#", number, 1) for source in self.sources)
        return replace(self, sources=sources, other=self.other and self.other.of_layer(number))

    def for_tensors(self, names: Container[str]) -> Rule | None:
        """This rule or its other, whichever has all its sources among ``names``."""
        if all(source in names for source in self.sources):
            return self
        return self.other and self.other.for_tensors(names)


Rules = Mapping[str, Rule]
"""By parameter name, with ``#`` for the layer's number."""


def rename(
    pairs: Mapping[str, str], places: Places = whole, values: Callable[[Tensor], Tensor] | None = None
) -> dict[str, Rule]:
    """Rules for modules (or bare parameters) that only have another name, their weights and biases alike.

    A pair maps ``self_attn.q_proj`` of a layer to ``attn_q``; names of tensors outside the layers are
    written with a leading dot (``.norm`` to ``output_norm``, below ``model``), or whole (``lm_head``).
    """
    rules: dict[str, Rule] = {}
    for ours, theirs in pairs.items():
        name, source = _full(ours, theirs)
        for suffix in (".weight", ".bias"):
            rules[name + suffix] = Rule((source + suffix,), places, values)
    return rules


def bare(
    pairs: Mapping[str, str | tuple[str, ...]],
    places: Places = whole,
    values: Callable[[Tensor], Tensor] | None = None,
) -> dict[str, Rule]:
    """Rules for parameters of a layer whose names end otherwise: the file's names are written in full."""
    return {
        f"model.layers.#.{ours}": Rule(
            tuple(f"blk.#.{one}" for one in ((theirs,) if isinstance(theirs, str) else theirs)),
            places,
            values,
        )
        for ours, theirs in pairs.items()
    }


def _full(ours: str, theirs: str) -> tuple[str, str]:
    if ours.startswith("."):
        return f"model{ours}", theirs
    if ours == "lm_head":
        return ours, theirs
    return f"model.layers.#.{ours}", f"blk.#.{theirs}"


_LAYER = re.compile(r"(?<=\.layers\.)(\d+)(?=\.)")


def find_rule(rules: Rules, name: str) -> Rule | None:
    """The rule for a parameter of the module, with the layer's number filled in; None if there is none."""
    match = _LAYER.search(name)
    if match is None:
        return rules.get(name)
    rule = rules.get(f"{name[: match.start()]}#{name[match.end() :]}")
    return rule and rule.of_layer(match[0])


HEAD = rename({".embed_tokens": "token_embd", ".norm": "output_norm", "lm_head": "output"})
ATTENTION = rename(
    {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
    }
)
QK_NORM = rename({"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"})
MLP = rename({"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"})
PRE_NORM = rename({"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"})

DECODER: Rules = HEAD | ATTENTION | MLP | PRE_NORM
"""What most dense decoders have in common: the names of Llama's modules."""


def stacked(target: Tensor, config: Config) -> Sequence[Sequence[Tensor]]:
    """Two tensors of the file one above the other in the parameter's next-to-last dimension."""
    return tuple((half,) for half in target.chunk(2, dim=-2))


def experts(module: str = "mlp", router: str = "mlp.gate") -> dict[str, Rule]:
    """A mixture of experts: gate and up projections of all experts in one parameter, down in another."""
    fused = Rule(("blk.#.ffn_gate_up_exps.weight",))
    apart = Rule(("blk.#.ffn_gate_exps.weight", "blk.#.ffn_up_exps.weight"), stacked, other=fused)
    return {
        **rename({router: "ffn_gate_inp"}),
        **bare({f"{module}.experts.down_proj": "ffn_down_exps.weight"}),
        f"model.layers.#.{module}.experts.gate_up_proj": apart,
    }


def shared_expert(module: str) -> dict[str, Rule]:
    """The expert that every token passes through."""
    return rename(
        {
            f"{module}.gate_proj": "ffn_gate_shexp",
            f"{module}.up_proj": "ffn_up_shexp",
            f"{module}.down_proj": "ffn_down_shexp",
        }
    )


def rotary_pairs(heads: Callable[[Config], int]) -> Places:
    """Rows of each head that llama.cpp keeps as neighbouring pairs; the parameter has two halves."""

    def places(target: Tensor, config: Config) -> Sequence[Sequence[Tensor]]:
        halves = target.reshape(heads(config), 2, -1, *target.shape[1:])
        return ((halves.swapaxes(1, 2),),)

    return places


def query_heads(config: Config) -> int:
    return int(config.num_attention_heads)


def key_heads(config: Config) -> int:
    return int(config.num_key_value_heads)


def without_one(numbers: Tensor) -> Tensor:
    """A norm's weight that the file holds with one added."""
    return numbers - 1


def log_of_negative(numbers: Tensor) -> Tensor:
    """``A_log`` from the decay ``-exp(A_log)`` of the file."""
    return (-numbers).log()


def squeezed(target: Tensor, config: Config) -> Sequence[Sequence[Tensor]]:
    """A depthwise convolution's kernel, whose middle dimension of one the file leaves out."""
    return ((target.squeeze(1),),)
