"""Descriptions of architectures whose files can be read. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core_plugin_gguf.header import Header, TensorInfo
    from core_plugin_gguf.rows import Layout

ROPE_FREQUENCIES = "rope_freqs.weight"
"""Tensor of frequency divisors: Llama 3's, and Gemma 4's, which say what rotates."""
ROPE_FACTORS = ("rope_factors_short.weight", "rope_factors_long.weight")
"""Those of long contexts."""
COUNTS = frozenset({"rotary_dim", "qk_rope_head_dim"})
"""Keys of configurations that say how many dimensions of a head rotate."""


@dataclass(frozen=True, slots=True)
class Facts:
    """A file, as the keys of a configuration are read from it.

    Attributes:
        arch: GGUF's name of the architecture, which its keys begin with.
        tensors: By GGUF's names.
        config: What is known already, by the usual names of keys.
    """

    header: Header
    arch: str
    tensors: Mapping[str, TensorInfo]
    config: Mapping[str, Any]

    def key(self, name: str) -> str:
        """Return the whole name of a key of the architecture."""
        return f"{self.arch}.{name}"

    def has(self, module: str) -> bool:
        """Say whether the first block has a tensor (`attn_q.bias`), or the file one of that whole name."""
        return f"blk.0.{module}" in self.tensors or module in self.tensors


Read = Callable[[Facts], Mapping[str, Any]]
"""Reads further keys of a configuration."""
MakeLayout = Callable[["Header", str], "Layout"]
"""Returns, for a file and GGUF's name of its architecture, how the rows of a module are stored."""
Shape = Callable[[tuple[int, ...]], tuple[int, ...]]
"""Hugging Face's shape of a weight, for that in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """How an architecture's converter describes a model, and names and stores its tensors.

    Attributes:
        model, model_type: Hugging Face's names.
        blocks: Module in a block -> module in a layer. All layers have the first one's weight.
        variants: `module in a block -> further names`, for files that have that module.
        modules: Modules outside of blocks -> Hugging Face's paths; with `{}` for the number of one, where a module has
            several along its first dimension.
        layer: Path of a layer, `{}` for its number.
        layer_norm: Whether norms subtract the mean; their epsilon has another key of the file.
        eps: Key of the epsilon in the configuration; None: it has none, and the file need not either.
        keys: Usual keys of a configuration -> those that this model has instead.
        values: Values that the configuration needs and no file says.
        reads: Further keys.
        rotates: Whether there is rotary embedding.
        partial: Key that says which share of a head rotates, or one of `COUNTS` for the number of its dimensions; None:
            all of it.
        paired: Projections whose rows are stored in the order of interleaved rotary embedding.
        by_turns: Fused projection that Hugging Face stores head by head; files have queries, keys, values.
        split: Fused projections that Hugging Face stores apart -> the modules of queries, keys and values.
        stacked: Module with an entry for each head, or expert, along its first dimension -> path of the module of one,
            `{}` for its number.
        experts: Whether files with experts are this architecture's; its `stacked` then has their modules.
        joined: Module with the values of latent attention, head by head -> the module with its keys, each head turned,
            and Hugging Face's module that holds both: `(heads * (key + value), latent)`.
        turned: Modules whose weight Hugging Face stores as `(in, out)`.
        norm_offset: What was added to the weights of norms.
        norm_offsets: The same of norms in a block, where it is something else.
        layouts: Modules in a block whose rows, or columns, are stored in an order of their own, or are several of
            Hugging Face's modules.
        shapes: Modules whose weight has another shape there, with the same numbers in the same order.
        decays: Modules that hold `-exp(weight)`.
        rows: Modules of one output, whose weight is a row that files hold without the dimension of the outputs.
        unsuffixed: Norms in a block that files name without `.weight`.
        bare: Modules that Hugging Face stores as a tensor of their own name, without `.weight`; files may, too.
        head: Key of the size of a head, in the first layer; files without it have `attention.key_length`.
        inner: Module in a block with as many rows as the size of the MLP says; empty: none has.
        both: Whether the size of the MLP counts gate and up together.
        uneven: Whether layers have numbers of heads and sizes of their own, which may be 0.
        attends: Whether any layer has heads, or an MLP: files say 0 of those that have none.
        linear: Module of a linear layer in the place of attention, of layers of uneven models that have no queries.
    """

    model: str
    model_type: str
    blocks: Mapping[str, str]
    variants: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    modules: Mapping[str, str]
    layer: str = "model.layers.{}"
    layer_norm: bool = False
    eps: str | None = "rms_norm_eps"
    keys: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    reads: tuple[Read, ...] = ()
    rotates: bool = True
    partial: str | None = None
    paired: frozenset[str] = frozenset()
    by_turns: str | None = None
    split: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    stacked: Mapping[str, str] = field(default_factory=dict)
    experts: bool = False
    joined: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    turned: frozenset[str] = frozenset()
    norm_offset: float = 0.0
    norm_offsets: Mapping[str, float] = field(default_factory=dict)
    layouts: Mapping[str, MakeLayout] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    decays: frozenset[str] = frozenset()
    rows: frozenset[str] = frozenset()
    unsuffixed: frozenset[str] = frozenset()
    bare: frozenset[str] = frozenset()
    head: str = "attention.key_length"
    inner: str = "ffn_up"
    both: bool = False
    uneven: bool = False
    attends: bool = True
    linear: str = ""
