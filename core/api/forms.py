"""Forms of weights: how a part of a layer's weight is stored, whatever file it comes from. Torch-free to import.

A *format* (`core.quantization`) reads checkpoint tensors into parts of a stated form. A *product* (`core.kernels`)
multiplies with the forms that its descriptor names, and the reference product with all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from core.api.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch
    from torch import Tensor

AS_IS = "as_is"
"""Activations that are not rounded."""


class WeightForm(Record):
    """How the numbers of a weight `(outputs, inputs)` are stored: `(code - zero) * scale`.

    Attributes:
        codes: Kind of the codes: `plain` (numbers in a float dtype), `int`, `float8_e4m3fn`, `float8_e5m2`, `e2m1`,
            `nf4`, `fp4` (of bitsandbytes), or the blocks of a file format by their own name (`gguf:Q4_K`).
        bits: Bits of an `int` code.
        outputs, inputs: Outputs and inputs that share a scale; 0: all of them.
        scale: Type of the scales: `float32`; `e8m0`; `e4m3`, which has a float32 for the whole part besides.
        zeros: Whether codes are unsigned, with a zero point beside each scale. Without, they are signed.
        ordered: Whether a tensor says of each input which group it belongs to, in any order.
        activations: How activations are rounded before they are multiplied: `as_is`, `int8:token`, `float8:token`,
            `float8:tensor`, `float8:128`, `float8:32`, `e2m1:16` and `e2m1:32` (runs of so many inputs).
    """

    codes: str = "plain"
    bits: int = 16
    outputs: int = 1
    inputs: int = 0
    scale: str = "float32"
    zeros: bool = False
    ordered: bool = False
    activations: str = AS_IS

    @property
    def key(self) -> str:
        """The form as text, which patterns are held against: `plain@as_is`, `int4/1x128:float32+zeros@as_is`."""
        if self.codes == "plain" or ":" in self.codes:
            return f"{self.codes}@{self.activations}"
        codes = f"int{self.bits}" if self.codes == "int" else self.codes
        group = "x".join(str(size) if size else "all" for size in (self.outputs, self.inputs))
        further = "+zeros" * self.zeros + "+ordered" * self.ordered
        return f"{codes}/{group}:{self.scale}{further}@{self.activations}"

    @property
    def shown(self) -> str:
        """The key without activations that are as they are, for reports."""
        return self.key.removesuffix(f"@{AS_IS}")

    def fits(self, patterns: Iterable[str]) -> bool:
        """Whether the form's key matches one of these globs."""
        return any(fnmatchcase(self.key, pattern) for pattern in patterns)


PLAIN = WeightForm()
"""Numbers in a float dtype, activations as they are."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A checkpoint tensor of a part, `<module>.<suffix>`, and how it lies along the part's outputs and inputs.

    Core compares its sizes with the model, takes what a fused tensor or a rank needs of it, and only then has it read.

    Attributes:
        suffix: What follows its module's name and the dot.
        axes: Its dimension along the outputs, and along the inputs; None: it has none, and is the same for all.
        per: Outputs, and inputs, that `unit` elements hold along these dimensions: `(1, 8)` for eight 4-bit codes of
            neighbouring inputs in a word, `(1, 128)` for one scale for 128 inputs.
        unit: Elements along each of these dimensions that can only be taken together: with `per` of `(1, 32)`, `(1, 3)`
            for 32 codes of 3 bits in 3 words; with `(1, 256)`, `(1, 144)` for the bytes of a block of `Q4_K`.
        encoding: `WeightTensor.encoding` that `per` and `unit` hold for, in what `raw()` gives. A tensor that comes in
            another (plain numbers of an update for a model in blocks) has one number for each output and input. A
            dimension of one element is shared by all.
        optional: Whether a checkpoint may lack it.
        padded: Multiples of outputs and inputs up to which a checkpoint may fill its dimensions with one number;
            core takes what belongs to the model.
        whole: Whether it can only be taken as a whole. Of a layer that ranks divide, or of a fused module, a format
            then reads all of the part, and core takes what belongs to it.
        count: Elements along a dimension that is neither, behind those that are: groups in any order; 0: any number,
            along any number of such dimensions.
    """

    suffix: str
    axes: tuple[int | None, int | None] = (0, 1)
    per: tuple[int, int] = (1, 1)
    unit: tuple[int, int] = (1, 1)
    encoding: str = "plain"
    optional: bool = False
    count: int = 1
    whole: bool = False
    padded: tuple[int, int] = (1, 1)

    def elements(self, outputs: int, inputs: int) -> tuple[int, int]:
        """Return how many elements hold so many outputs along its dimension of them, and so many inputs."""
        whole = (-(-size // per) for size, per in zip((outputs, inputs), self.per, strict=True))
        first, second = (blocks * unit for blocks, unit in zip(whole, self.unit, strict=True))
        return first, second


@dataclass(slots=True)
class Part:
    """One part of a layer's weight, as a format has read it.

    Attributes:
        form: The form in which it came; other than the one that the format told of if, for instance, an update of the
            weights brings plain numbers for a model that was stored in blocks.
        codes: `(outputs, inputs)`, one code each: int8, with zero points uint8; of a float8 its dtype or uint8; of
            `e2m1`, `nf4` and `fp4` uint8, 0 to 15. Of blocks of a file format `(outputs, bytes)` uint8.
        scales: `(outputs / form.outputs, inputs / form.inputs)`, rounded up, 1 where all share one: float32, or of
            another `form.scale` its dtype or uint8.
        zeros: Zero points, shaped as `scales`, in any dtype: some formats have fractions.
        group_of: `(inputs,)` int64, the column of `scales` that each input belongs to, where the form is `ordered`.
        tensor_scale: `()` float32, a scale for the whole part.
        input_scale: `()` float32, the scale of activations where the checkpoint fixes it: rounded ones are multiples
            of it (`float8:tensor`), or of a scale in e4m3 for each run times it (`e2m1:16`).
        bias: `(outputs,)` float32; set by core.
        decode: Returns the values `(outputs, inputs)` in a dtype. A format sets it for codes that core does not know;
            core sets it for all others before a product gets the part.
    """

    form: WeightForm
    codes: Tensor
    scales: Tensor | None = None
    zeros: Tensor | None = None
    group_of: Tensor | None = None
    tensor_scale: Tensor | None = None
    input_scale: Tensor | None = None
    bias: Tensor | None = None
    decode: Callable[[torch.dtype], Tensor] | None = None

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Return the values `(outputs, inputs)` in `dtype`. Raises `ValueError` for codes that nobody can open."""
        if self.decode is None:
            raise ValueError(f"weights of the form {self.form.key} have codes that neither core nor their format opens")
        return self.decode(dtype)
