"""Samples of the kinds that compute on a device: values to compare with, and references of the plugin's own.

A reference is a function in plain torch. The kit compares with it what it cannot know: an operation, a form of
quantization, a feature of attention, what a logits processor is for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core_testing.conformance.samples import Sample

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.attention import AttentionLayer, AttentionSite
    from core.api.platform import Platform
    from core.api.quantization import LayerSite
    from core_testing.conformance.tools.ops import Maker


@dataclass(frozen=True)
class CheckpointSample(Sample):
    """A small checkpoint, for the loader that reads its format and the method that quantized it.

    Attributes:
        write: Writes the checkpoint into an empty directory and returns its path: a file or the directory.
        values: Reads the values that are meant: checkpoint name in Hugging Face's vocabulary
            (`model.layers.0.mlp.up_proj.weight`) -> float32 tensor, what a quantized weight stands for included.
            None leaves values unchecked.
        layers: Layers of the checkpoint, for its quantization method; `values` then has `<prefix>.<part>.weight`
            (and `.bias`) of each of their parts.
        reference: What such a layer gives for inputs `(tokens, in)` float32, or `(tokens,)` ids of an embedding, if
            that is not the product with the weights of `values`: `(tokens, out)` float32. It is asked for an embedding
            as an output projection too (`site.kind` is then `lm_head`).
        tolerance: Greatest difference between `values` and what the loader decodes.
        apply_tolerance: Relative error that a method may add when it applies a layer, for instance because it
            rounds activations to 8 bits.
        text: Text that the checkpoint's tokenizer encodes and decodes without loss; None if it has no tokenizer.
    """

    write: Callable[[Path], Path]
    values: Callable[[], Mapping[str, Tensor]] | None = None
    layers: Sequence[LayerSite] = ()
    tolerance: float = 1e-5
    apply_tolerance: float = 0.02
    text: str | None = None
    reference: Callable[[LayerSite, Tensor], Tensor] | None = None


@dataclass(frozen=True)
class RoundingSample(Sample):
    """How a quantization method rounds plain weights while they load: what its layers are compared with.

    Attributes:
        rounded: The weight that a layer stands for once it is rounded, from its site and its weight `(rows, in)`
            float32, the parts stacked. None: layers are compared with the weights as they were.
        tolerance: Relative error in the 2-norm that applying a layer may have against that, besides the rounding of the
            compute dtype: of activations, or of weights that were in a narrow dtype before. Needed without `rounded`:
            then it is the method's own bound, at most 0.5.
    """

    rounded: Callable[[LayerSite, Tensor], Tensor] | None = None
    tolerance: float = 0.0


@dataclass(frozen=True)
class AttentionSample(Sample):
    """A feature of an attention backend that the kit does not know, and what it means.

    Attributes:
        feature: As in the descriptor's `features`.
        reference: What the last tokens of a sequence give, from their queries `(count, heads, head_dim)`, all keys and
            values `(length, kv_heads, head_dim)`, float32, and the site: `(count, heads, head_dim)` float32.
        site: Makes a layer's site with the feature from a plain one, which may have a window; None leaves it plain.
        prepare: Tells a layer what it has to know besides, once it is made; None if that is nothing.
    """

    feature: str
    reference: Callable[[Tensor, Tensor, Tensor, AttentionSite], Tensor]
    site: Callable[[AttentionSite], AttentionSite] | None = None
    prepare: Callable[[AttentionLayer], None] | None = None


@dataclass(frozen=True)
class KernelSample(Sample):
    """Arguments for a kernel: of an operation that the kit does not know, or of sizes that it does not try.

    Attributes:
        sizes: Name of each size -> values to try, besides `rows`. The kernel's `dims` are among the names.
        make: Makes the arguments, in the order of the reference form, for sizes and `rows`. Its first argument makes
            tensors in the compute dtype: `activations(*shape)`, `weights(*shape)`, and `indices(count, below)`. A dict
            at the end is passed by name. None: as the kit makes them for this operation of core.
        rows: Places of the arguments whose first dimension is the rows; an output's is too.
        large: Sizes, `rows` included, at which its speed is compared.
    """

    sizes: Mapping[str, Sequence[int]]
    make: Callable[[Maker, Mapping[str, int]], Sequence[Any]] | None = None
    rows: Sequence[int] = (0,)
    large: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LogitsSample(Sample):
    """A request that concerns a logits processor.

    Attributes:
        args: The request's `extra_args`, sampling parameters that the processor declares among them.
        refused: Further `extra_args` that its `check` must refuse.
        reference: What becomes of a row's logits `(vocabulary,)` float32, given the ids of prompt and output; they are
            a copy.
    """

    args: Mapping[str, Any]
    refused: Sequence[Mapping[str, Any]] = ()
    reference: Callable[[Tensor, Sequence[int], Sequence[int]], Tensor] | None = None


@dataclass(frozen=True)
class ReferenceDevice(Sample):
    """A device on which an implementation runs for level L1, though its descriptor does not name it.

    For example a kernel language's interpreter, which takes CPU tensors.
    """

    device: str = "cpu"


@dataclass(frozen=True)
class StandInRuntime(ReferenceDevice):
    """A platform's runtime over a device that stands in, for level L1 where its own is absent.

    Attributes:
        runtime: Makes the runtime; what it opens is a device of the type `device`.
    """

    runtime: Callable[[], Platform] | None = None

    def made(self) -> Platform:
        """Make the runtime. Raises `TypeError` if the sample has none."""
        if self.runtime is None:
            raise TypeError("a StandInRuntime needs its runtime")
        return self.runtime()
