"""Rotary position embeddings as data: scaling rules, their parameters, and the context that each gives. Torch-free."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping  # RopeConfig's fields need it at run time
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from core.api.configs import MOST_POSITIONS, config_int, config_number, config_object, finite
from core.api.errors import CheckpointError

ORIGINAL = "original_max_position_embeddings"


@dataclass(frozen=True, slots=True)
class RopeRule:
    """A scaling rule, with transformers' names of its parameters.

    Attributes:
        required: Numbers that must be given.
        optional: Numbers that may be given.
        factors: Lists that must be given: a divisor of the frequency for each pair of rotated dimensions.
        stretches: The context is `factor` times the original one. Otherwise `max_position_embeddings` is the context.
        by_context: The frequencies depend on the context that the engine is started with.
    """

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    factors: tuple[str, ...] = ()
    stretches: bool = False
    by_context: bool = False


RULES: Mapping[str, RopeRule] = types.MappingProxyType(
    {
        "default": RopeRule(),
        "linear": RopeRule(("factor",), (ORIGINAL,), stretches=True),
        "dynamic": RopeRule(("factor",), stretches=True, by_context=True),
        "llama3": RopeRule(("factor", "low_freq_factor", "high_freq_factor"), (ORIGINAL,)),
        "yarn": RopeRule(
            optional=(
                *("factor", ORIGINAL, "attention_factor", "beta_fast", "beta_slow"),
                *("mscale", "mscale_all_dim", "truncate"),
            ),
            stretches=True,
        ),
        "longrope": RopeRule(
            optional=("factor", ORIGINAL, "attention_factor"),
            factors=("short_factor", "long_factor"),
            stretches=True,
            by_context=True,
        ),
        "proportional": RopeRule(optional=("factor", "partial_rotary_factor")),
    }
)
"""Rules that core computes, by `rope_type`."""

_OLDER_NAMES: Mapping[str, str] = types.MappingProxyType({"su": "longrope"})
_NO_PARAMETERS = frozenset({"rope_type", "type", "finetuned"})
"""Keys beside the parameters that change nothing."""

_BESIDE = ("rope_theta", "partial_rotary_factor")
"""Keys that stand among the parameters, or beside them."""

_MOST_THETA = 1e12

_KNOWN = _NO_PARAMETERS.union(*((*rule.required, *rule.optional, *rule.factors) for rule in RULES.values()))


class RopeConfig(BaseModel):
    """Rotary embedding: base, rotated dimensions, and a scaling rule with Hugging Face's parameter names.

    Attributes:
        head_dim: Size of a head.
        rotary_dim: Leading dimensions of a head that are rotated; even.
        theta: Base of the frequencies.
        max_positions: The configuration's `max_position_embeddings`. Whether that is the context before or after
            scaling depends on the rule: see `original_positions` and `context`.
        scaling: `rope_type` (or `type`) and the rule's parameters; empty for none.
        interleaved: Dimensions 2i and 2i + 1 form a pair, not i and i + `rotary_dim` / 2.
    """

    model_config = ConfigDict(frozen=True)

    head_dim: int
    rotary_dim: int
    theta: float = 10000.0
    max_positions: int = 2048
    scaling: Mapping[str, float | str | list[float]] = {}
    interleaved: bool = False

    @property
    def rule(self) -> str:
        """Name of the scaling rule; `default` for none."""
        name = str(self.scaling.get("rope_type", self.scaling.get("type", "default")))
        return _OLDER_NAMES.get(name, name)

    @property
    def by_context(self) -> bool:
        """Whether the frequencies depend on the context that the engine is started with."""
        return RULES[self.rule].by_context

    @property
    def original_positions(self) -> int:
        """Context before scaling, in tokens."""
        if ORIGINAL not in RULES[self.rule].optional:
            return self.max_positions
        return int(self.number(ORIGINAL, self.max_positions))

    @property
    def factor(self) -> float:
        """Scaled over original context, as the rule's parameters say."""
        return self.number("factor", self.max_positions / self.original_positions)

    @property
    def context(self) -> int:
        """Longest context after scaling, in tokens."""
        return round(self.factor * self.original_positions) if RULES[self.rule].stretches else self.max_positions

    @property
    def default_context(self) -> int:
        """Context to start with where the user names none, in tokens.

        A rule with factors of its own for short contexts starts with these: those for long contexts would make
        answers to short prompts worse.
        """
        return min(self.context, self.original_positions) if RULES[self.rule].factors else self.context

    @property
    def described(self) -> str:
        """Rule and contexts in a few words."""
        short = "" if self.original_positions == self.context else f", {self.original_positions} before scaling"
        return f"{self.rule}, a context of {self.context} tokens{short}"

    def number(self, key: str, default: float | None = None) -> float:
        """Return a parameter. Raises `CheckpointError` CORE-M125 if there is no finite number."""
        value = self.scaling.get(key, default)
        number = finite(value)
        if number is None:
            raise self._fault(f"needs a number '{key}'; the model says {value!r:.60}")
        return number

    def divisors(self, key: str) -> list[float]:
        """Return a divisor for each pair of rotated dimensions. Raises `CheckpointError` CORE-M125."""
        value, due = self.scaling.get(key), self.rotary_dim // 2
        if not isinstance(value, list) or len(value) != due or not all(0 < one < math.inf for one in value):
            given = f"a list of {len(value)}" if isinstance(value, list) else repr(value)
            raise self._fault(f"needs a list '{key}' of {due} positive numbers; the model says {given}")
        return value

    def require_known(self) -> None:
        """Raise `CheckpointError` CORE-M125 for a rule or parameter that core does not compute, or one missing."""
        if self.rule not in RULES:
            raise self._fault(f"is not supported; supported: {', '.join(sorted(RULES))}")
        unknown = sorted(set(self.scaling) - _KNOWN)
        if unknown:
            raise self._fault(f"has parameters that are not supported: {', '.join(unknown)}")
        if self.scaling and not self.scaling.keys() & {"rope_type", "type"}:
            raise self._fault(f"has {', '.join(sorted(self.scaling))}, but no 'rope_type'")
        self._require_parameters(RULES[self.rule])

    def _require_parameters(self, rule: RopeRule) -> None:
        for key in (*rule.required, *(key for key in rule.optional if key in self.scaling)):
            self.number(key)
        for key in rule.factors:
            self.divisors(key)
        if rule.stretches and ORIGINAL not in self.scaling:
            self.number("factor")
        if self.original_positions < 1:
            raise self._fault(f"needs a positive '{ORIGINAL}', not {self.original_positions}")
        if "factor" in (*rule.required, *rule.optional) and self.factor <= 0:
            raise self._fault(f"needs a positive 'factor', not {self.factor:g}")
        span = self.factor * self.original_positions if rule.stretches else self.max_positions
        if not 1 <= span <= MOST_POSITIONS:
            raise self._fault(f"makes a context of {span:.4g} tokens, not of 1 to {MOST_POSITIONS}")
        if self.rule == "llama3" and self.number("high_freq_factor") <= self.number("low_freq_factor"):
            raise self._fault("needs a 'high_freq_factor' greater than its 'low_freq_factor'")

    def _fault(self, what: str) -> CheckpointError:
        hint = "Correct 'rope_scaling' ('rope_parameters') in the checkpoint, or replace it with --rope-scaling."
        return CheckpointError("CORE-M125", f"rotary scaling '{self.rule}' {what}.", hint=hint)


def rope_config(
    config: Mapping[str, Any],
    head_dim: int,
    *,
    theta: float = 10000.0,
    partial: float = 1.0,
    interleaved: bool = False,
    kind: str | None = None,
) -> RopeConfig:
    """Read a rotary embedding: `rope_parameters` (transformers 5), or `rope_theta` and `rope_scaling` (transformers 4).

    Args:
        theta: The base where the configuration names none.
        partial: The share of a head that rotates, where the configuration names none.
        interleaved: As in `RopeConfig`.
        kind: Of layers, where the parameters differ by it; they may also be the same for all.

    Raises:
        CheckpointError: CORE-M125, nobody computes the scaling rule with these parameters; CORE-M126, the parameters
            differ by kind of layer, or a size is no size.
    """
    newer = config_object(config, "rope_parameters")
    if kind is not None and kind in newer:
        newer = config_object(newer, kind)
    scaling = dict(config_object(config, "rope_scaling") or newer)
    for key, value in scaling.items():
        if isinstance(value, Mapping):
            raise CheckpointError("CORE-M126", f"rotary parameters by kind of layer ('{key}') are not supported.")
    # Whichever of the places has the key: the nearest counts.
    flat = {key: config.get(key) for key in _BESIDE} | {
        key: newer[key] for key in _BESIDE if newer.get(key) is not None
    }
    flat |= {key: value for key in _BESIDE if (value := scaling.pop(key, None)) is not None}
    rotary_dim = int(head_dim * config_number(flat, "partial_rotary_factor", partial))
    if scaling.get("rope_type") == "proportional":
        # Its share counts pairs of a head of which all dimensions are rotated, some of them by nothing.
        scaling["partial_rotary_factor"] = rotary_dim / head_dim
        rotary_dim = head_dim
    if not 2 <= rotary_dim <= head_dim or rotary_dim % 2:
        text = f"{rotary_dim} of a head's {head_dim} dimensions cannot rotate in pairs"
        raise CheckpointError("CORE-M126", f"{text} ('head_dim' times 'partial_rotary_factor').")
    rope = RopeConfig(
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        theta=config_number(flat, "rope_theta", theta, least=1.0, most=_MOST_THETA),
        max_positions=config_int(config, "max_position_embeddings", 2048, most=MOST_POSITIONS),
        scaling=_set(scaling),
        interleaved=interleaved,
    )
    rope = _with_original(rope, config)
    rope.require_known()
    return rope if rope.rule != "default" else rope.model_copy(update={"scaling": {}})


def _with_original(rope: RopeConfig, config: Mapping[str, Any]) -> RopeConfig:
    """Phi-3 writes the original context beside `rope_scaling`; there it counts more, as in transformers."""
    if config.get(ORIGINAL) is None or rope.rule not in RULES or ORIGINAL not in RULES[rope.rule].optional:
        return rope
    return rope.model_copy(update={"scaling": {**rope.scaling, ORIGINAL: float(config_int(config, ORIGINAL))}})


def _set(scaling: Mapping[str, Any]) -> dict[str, float | str | list[float]]:
    """Return what is not null. Raises `CheckpointError` CORE-M125 for values that no parameter has."""
    for key, value in scaling.items():
        numbers = value if isinstance(value, list) else [value]
        if (
            value is not None
            and not isinstance(value, (bool, str))
            and not all(isinstance(one, float) or finite(one) is not None for one in numbers)
        ):
            raise CheckpointError("CORE-M125", f"rotary scaling has '{key}': {value!r:.60}, which is no parameter.")
    return {key: value for key, value in scaling.items() if value is not None}
