"""Mixers of state-space layers, as data: Mamba and Mamba-2. Torch-free.

Modules have the names that the first checkpoints gave them: `in_proj`, `conv1d`, `x_proj`, `dt_proj`, `A_log`, `D`,
`dt_bias`, `norm`, `out_proj`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from core.api import CheckpointError
from core_plugin_decoder.description import Norm, Recurrence

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs

    Mixer = Callable[[Tensor, StepInputs], Tensor]

Limits = tuple[float, float]
Dim = tuple[str, int]
Sizes = dict[str, tuple[Dim, ...]]

UNLIMITED = 65536
"""Context in tokens of a model that no configuration limits: states are as large for a long text as for a short one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba:
    """Mamba: a state space of a diagonal for each channel, whose steps and projections follow from the token.

    Attributes:
        channels: Inner size.
        state_dim: Numbers of a channel's state.
        rank: Size of what the steps of all channels are made of.
        width: Tokens that the convolution reads, with the own one.
        bias, conv_bias: Whether `in_proj` and `out_proj`, and the convolution, have one.
        norms: Of the parts of `x_proj`: of what steps are made of, of what is read by (B), and of what is read (C).
        name: Its module in a layer.
    """

    channels: int
    state_dim: int
    rank: int
    width: int = 4
    bias: bool = False
    conv_bias: bool = True
    norms: tuple[Norm, Norm, Norm] | None = None
    name: str = "mixer"

    def recurrence(self, hidden_size: int) -> Recurrence:
        """Return it as what reads its past by recurrence."""
        weights = tuple(self._weights(("hidden_size", hidden_size)).items())
        return Recurrence(name=self.name, make=partial(_mamba, self), weights=weights)

    def _weights(self, hidden: Dim) -> Sizes:
        inner, rank = ("intermediate_size", self.channels), ("time_step_rank", self.rank)
        found: Sizes = {
            "in_proj": (("2 * intermediate_size", 2 * self.channels), hidden),
            "conv1d": (inner, ("1", 1), ("conv_kernel", self.width)),
            "x_proj": (("time_step_rank + 2 * state_size", self.rank + 2 * self.state_dim), inner),
            "dt_proj": (inner, rank),
            "out_proj": (hidden, inner),
        }
        state = ("state_size", self.state_dim)
        for norm, size in zip(self.norms or (), (rank, state, state)):
            if norm.weight:
                found[norm.name] = (size,)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2:
    """Mamba-2: each head gathers the outer products of its tokens' B and values in a matrix that decays.

    Attributes:
        heads, head_dim: Of the values; their product is the inner size.
        groups: Heads of B and C, each of which is read by `heads / groups` neighbouring heads.
        state_dim: Size of a head of B and C.
        width: Tokens that the convolution reads, with the own one.
        bias, output_bias, conv_bias: Whether `in_proj`, `out_proj` and the convolution have one.
        limits: Least and greatest step.
        norm: Of what goes into `out_proj`; None: there is none.
        norm_first: The gate comes behind the norm, not before.
        input_scale, output_scale: Factors of the hidden states that it reads, and of those that it gives.
        factors: Of the parts of `in_proj`: gate, values, B, C, steps.
        name: Its module in a layer.
    """

    heads: int
    head_dim: int
    groups: int
    state_dim: int
    width: int = 4
    bias: bool = False
    output_bias: bool = False
    conv_bias: bool = True
    limits: Limits = (0.0, float("inf"))
    norm: Norm | None = None
    norm_first: bool = False
    input_scale: float = 1.0
    output_scale: float = 1.0
    factors: tuple[float, float, float, float, float] = (1.0,) * 5
    name: str = "mixer"

    def __post_init__(self) -> None:
        if self.heads % self.groups:
            text = f"{self.heads} heads of a state-space layer cannot share {self.groups} groups of B and C."
            raise CheckpointError("CORE-M126", text)

    @property
    def channels(self) -> int:
        """Inner size."""
        return self.heads * self.head_dim

    @property
    def mixed(self) -> int:
        """Channels of the convolution: values, B and C."""
        return self.channels + 2 * self.groups * self.state_dim

    def recurrence(self, hidden_size: int) -> Recurrence:
        """Return it as what reads its past by recurrence."""
        weights = tuple(self._weights(("hidden_size", hidden_size)).items())
        return Recurrence(name=self.name, make=partial(_mamba2, self), weights=weights)

    def _weights(self, hidden: Dim) -> Sizes:
        inner = ("num_heads * head_dim", self.channels)
        mixed = "num_heads * head_dim + 2 * n_groups * state_size"
        projected = "2 * (num_heads * head_dim + n_groups * state_size) + num_heads"
        found: Sizes = {
            "in_proj": ((projected, self.channels + self.mixed + self.heads), hidden),
            "conv1d": ((mixed, self.mixed), ("1", 1), ("conv_kernel", self.width)),
            "out_proj": (hidden, inner),
        }
        if self.norm is not None and self.norm.weight:
            found[self.norm.name] = (inner,)
        return found


def step_limits(config: Mapping[str, Any], key: str = "time_step_limit") -> Limits:
    """Return the least and the greatest step; no limits where the key is missing or null.

    Raises:
        CheckpointError: CORE-M126, they are no two numbers from 0 on, in order.
    """
    given = config.get(key)
    if given is None:
        return 0.0, float("inf")
    numbers = [_number(one) for one in given] if isinstance(given, list | tuple) else []
    if len(numbers) != 2 or not 0 <= numbers[0] <= numbers[1]:
        raise CheckpointError("CORE-M126", f"'{key}' is {given!r:.60}, not the least and the greatest step.")
    return numbers[0], numbers[1]


def _number(given: object) -> float:
    """Return a number of a configuration; transformers writes one without end as `{"__float__": "Infinity"}`."""
    if given == {"__float__": "Infinity"}:
        return float("inf")
    return float(given) if isinstance(given, int | float) else float("nan")


def _mamba(given: Mamba, build: LayerBuilder, hidden_size: int, path: str) -> Mixer:
    from core_plugin_decoder.mamba import MambaMixer

    return MambaMixer(given, build, hidden_size, path)


def _mamba2(given: Mamba2, build: LayerBuilder, hidden_size: int, path: str) -> Mixer:
    from core_plugin_decoder.mamba2 import Mamba2Mixer

    return Mamba2Mixer(given, build, hidden_size, path)
