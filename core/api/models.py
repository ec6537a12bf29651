"""Model plugins: how they build and run, and how a checkpoint's names become theirs.

A model asks a `LayerBuilder` for layers by role; core decides quantization, sharding and kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from core.api.layers import LayerBuilder, StepInputs


class WeightRules(BaseModel):
    """How checkpoint names become parameter names, as data.

    Attributes:
        rename: Replacements of what a name begins with, first match wins. A `*` stands for what is between two dots,
            in the order in which it comes: `("layers.*.experts.*.w1.", "layers.*.mlp.*.gate_proj.")`.
        skip: Name globs that are left out on purpose (`*.rotary_emb.inv_freq`, a tied `lm_head.weight`).
        transpose: Name globs of matrices that the checkpoint stores as `(in, out)`, not as `(out, in)`. Of a weight it
            holds for the tensors `_weight_*` too that a format has in its place.
        experts: Tensors that hold one thing of all experts along their first dimension: what their names end with after
            renaming, and what the names of the parts end with, `{}` for the expert's number:
            `(".experts.gate_up_proj", ".experts.{}.gate_up_proj.weight")`. `transpose` then speaks of the parts. A
            third entry is a number of experts whose rows stand one under another, `(experts * rows, columns)`; without
            it the dimension counts the experts. What a format has of a weight besides follows its name behind an
            underscore, or stands around it: `.experts.gate_up_proj_scales` is `.experts.{}.gate_up_proj.weight_scales`,
            and `.experts._gate_up_proj_scale` is `.experts.{}.gate_up_proj._weight_scale`. One number is that of all
            experts.
    """

    model_config = ConfigDict(frozen=True)

    rename: tuple[tuple[str, str], ...] = ()
    skip: tuple[str, ...] = ()
    transpose: tuple[str, ...] = ()
    experts: tuple[tuple[str, str] | tuple[str, str, int], ...] = ()


class Model(Protocol):
    """One architecture. `impl` of a `ModelSpec` names the class."""

    def __init__(self, config: Mapping[str, object], build: LayerBuilder) -> None: ...

    def forward(self, step: StepInputs) -> Tensor:
        """Return the final hidden states, `(tokens, hidden)`."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Project `(rows, hidden)` to `(rows, vocab)`, any float dtype."""
        ...

    @classmethod
    def weight_rules(cls, config: Mapping[str, object]) -> WeightRules:
        """Return how the names of a checkpoint with this configuration become names of parameters."""
        ...


class ChatTemplates(Protocol):
    """The chat templates of a model family, for checkpoints that come without one. Torch-free.

    Attributes:
        names: What users may ask for with `--chat-template NAME`.
    """

    names: Sequence[str]

    def source(self, name: str) -> str:
        """Return the Jinja source of one of `names`."""
        ...

    def suited(self, config: Mapping[str, object], tokens: frozenset[str]) -> str | None:
        """Return the name of the template that a checkpoint was made for; None where that cannot be told.

        Args:
            config: The checkpoint's `config.json`.
            tokens: Texts of the tokens that were added to its vocabulary.
        """
        ...


class Classifies(Protocol):
    """Optional part of a model: a head on what pooling gives. A model that only pools needs no `logits`."""

    def classify(self, pooled: Tensor) -> Tensor:
        """Project `(rows, hidden)` to `(rows, labels)`, any float dtype."""
        ...
