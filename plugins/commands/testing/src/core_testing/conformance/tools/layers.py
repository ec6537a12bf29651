"""Layers of a quantization method, filled as core fills them, beside their dequantized values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from core.api.descriptors import QuantSpec, WeightLoaderSpec
from core.api.forms import Part
from core.api.quantization import Format, LayerSite, QuantContext, QuantRequest
from core.api.verdict import Verdict
from core.api.weights import CheckpointReader, WeightTensor
from core.layers.guard import LayerContext
from core.layers.linear import Linear
from core_testing.conformance.device_samples import CheckpointSample, RoundingSample
from core_testing.conformance.outcome import Failed, Unavailable, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.devices import device_of, dtype_of, probe_of
from core_testing.conformance.tools.options import some_options
from core_testing.conformance.tools.tensors import PlainTensor
from core_testing.layers import fill, make_layer

_LOOSEST = 0.5
"""Relative error beyond which a layer that passes shows nothing."""

_QKV = (("q_proj", 24), ("k_proj", 8), ("v_proj", 8))
_PLAIN_SITES = (
    LayerSite("linear", "model.layers.0.mlp.down_proj", 32, (("", 16),)),
    LayerSite("linear", "model.layers.0.mlp.bias_proj", 32, (("", 16),), bias=True),
    LayerSite("linear", "model.layers.0.self_attn", 16, _QKV),
    LayerSite("linear", "model.layers.1.self_attn", 16, _QKV, bias=True),
    LayerSite("embedding", "model.embed_tokens", 16, (("", 40),)),
    LayerSite("lm_head", "lm_head", 16, (("", 40),)),
)


@dataclass(frozen=True)
class Case:
    """A checkpoint with layers.

    Attributes:
        config: The checkpoint's description of its quantization.
        tensors: Reads the tensors, each time anew.
        values: Name -> what is meant, float32.
        tolerance: Relative error that applying a layer may have, besides that of the compute dtype.
        plain: Whether the tensors are plain weights, so that others can be put in their place.
        rounded: Makes of a layer's weight what it stands for; None where that is the weight itself.
        reference: What a layer gives for an input, where that is not the product with its weight.
    """

    name: str
    config: Mapping[str, object]
    tensors: Callable[[], Iterable[WeightTensor]]
    values: Mapping[str, Tensor]
    sites: Sequence[LayerSite]
    tolerance: float
    plain: bool = False
    rounded: Callable[[LayerSite, Tensor], Tensor] | None = None
    reference: Callable[[LayerSite, Tensor], Tensor] | None = None

    def due(self, site: LayerSite, x: Tensor, *, tied: bool = False) -> Tensor:
        """Return what a layer is to give for `(tokens, in)` activations, or `(tokens,)` ids: `(tokens, out)` float32.

        Args:
            tied: The layer is an embedding that serves as the output projection.
        """
        use = replace(site, kind="lm_head") if tied else site
        x = x.cpu() if use.kind == "embedding" else x.float().cpu()
        if self.reference is not None:
            return self.reference(use, x)
        weight, bias = self.meant(site)
        return functional.embedding(x, weight) if use.kind == "embedding" else functional.linear(x, weight, bias)

    def meant(self, site: LayerSite) -> tuple[Tensor, Tensor | None]:
        """Return a layer's dequantized weight, its parts stacked, and its bias."""
        names = [site.module(part) for part, _ in site.parts]
        weight = torch.cat([self.values[f"{name}.weight"].float() for name in names])
        bias = torch.cat([self.values[f"{name}.bias"].float() for name in names]) if site.bias else None
        return weight if self.rounded is None else self.rounded(site, weight), bias


class LayerBench:
    """One layer as a format reads it, with the reference product."""

    def __init__(self, subject: Subject, case: Case, site: LayerSite, dtype: str) -> None:
        self.device = device_of(subject, subject.spec(QuantSpec).needs)
        self.dtype = dtype_of(dtype)
        self.format: Format = subject.impl()(QuantContext(self.device, self.dtype, case.config, some_options(subject)))
        self.layer = make_layer(self.format, site, device=self.device, dtype=self.dtype)
        self.case, self.site = case, site
        self.fill()

    def fill(self, tensors: Iterable[WeightTensor] | None = None) -> None:
        """Load the layer's tensors, those of the case by default."""
        fill(self.layer.group, self.case.tensors() if tensors is None else tensors, self.device)

    def tensors(self, part: str) -> dict[str, WeightTensor]:
        """Return what the checkpoint has of a part's module, by suffix."""
        module = f"{self.site.module(part)}."
        every = {one.name: one for one in self.case.tensors() if one.name.startswith(module)}
        return {name.removeprefix(module): one for name, one in every.items()}

    def read(self, part: str) -> Part:
        """Return a part as the format reads it."""
        suffixes = {one.suffix for one in self.format.stored(self.site, part)}
        given = {suffix: one for suffix, one in self.tensors(part).items() if suffix in suffixes}
        return self.format.read(self.site, part, given)

    def tied_head(self) -> Linear:
        """Return an output projection that reads this embedding's stored parameters."""
        head = Linear(replace(self.site, kind="lm_head"), self.layer.group, LayerContext(self.device, self.dtype))
        self.fill()
        return head

    def inputs(self, tokens: int, seed: int = 0) -> Tensor:
        """Return random activations `(tokens, in)`, for an embedding token ids."""
        rng = torch.Generator().manual_seed(seed)
        if self.site.kind == "embedding":
            return torch.randint(0, self.site.rows, (tokens,), generator=rng).to(self.device)
        return torch.randn(tokens, self.site.in_features, generator=rng).to(self.device, self.dtype)


def cases(subject: Subject) -> Iterator[Case]:
    """Yield plain weights for a method that takes them, then every sample that an installed package has for it.

    Raises:
        Unavailable: There is nothing to check the method with.
    """
    found = _plain(subject) if "none" in subject.spec(QuantSpec).methods else []
    found += subject.once("cases", lambda: list(_sampled(subject)))
    if not found:
        subject.need_samples(CheckpointSample)
        methods = ", ".join(sorted(subject.spec(QuantSpec).methods))
        raise Unavailable(f"no CheckpointSample with `layers`, and `values` or a `reference`, is of {methods}")
    yield from found


def verdict_on(subject: Subject, config: Mapping[str, object]) -> Verdict:
    """Ask the method's `refine`, if it has one, as selection does. Raises `Failed` for an answer of another type."""
    spec = subject.spec(QuantSpec)
    if spec.refine is None:
        return Verdict()
    request = QuantRequest(min(spec.methods), subject.device, "auto", config)
    verdict = subject.load(spec.refine)(request, probe_of(subject, spec.needs))
    if not isinstance(verdict, Verdict):
        raise Failed(f"{spec.refine} gives a {type(verdict).__name__}, not a Verdict")
    return verdict


def _plain(subject: Subject) -> list[Case]:
    """Return plain weights, to be compared with as they are, or as the plugin's samples say that it rounds them.

    Raises:
        Unavailable: It changes what the checkpoint says, and no sample says how.
        Failed: A sample says nothing.
    """
    samples, case = subject.samples(RoundingSample), _plain_weights(_PLAIN_SITES)
    if not samples and subject.spec(QuantSpec).needs_request("none"):
        raise Unavailable(subject.wants(RoundingSample, "it rounds weights while they load (`on_request`)"))
    for sample in samples:
        said = sample.rounded is not None or 0 < sample.tolerance <= _LOOSEST
        require(
            said, f"'{sample.name}' has no reference, and a tolerance of {sample.tolerance:g}: of 0 to {_LOOSEST:g}"
        )
    rounded = [replace(case, name=one.name, tolerance=one.tolerance, rounded=one.rounded) for one in samples]
    return rounded or [case]


def large_plain() -> Case:
    """Return a layer of plain weights whose memory says something."""
    return _plain_weights((LayerSite("linear", "model.layers.0.mlp.up_proj", 1024, (("", 1024),)),))


def _plain_weights(sites: Sequence[LayerSite]) -> Case:
    rng = torch.Generator().manual_seed(9)
    values: dict[str, Tensor] = {}
    for site in sites:
        for part, rows in site.parts:
            name = site.module(part)
            values[f"{name}.weight"] = torch.randn(rows, site.in_features, generator=rng)
            if site.bias:
                values[f"{name}.bias"] = torch.randn(rows, generator=rng)
    tensors = [PlainTensor(*pair) for pair in values.items()]
    return Case("plain", {}, lambda: tensors, values, sites, 0.0, plain=True)


def _sampled(subject: Subject) -> Iterator[Case]:
    """Yield the cases of all samples of the method: the plugin's own, those of loaders, and of other plugins for it."""
    loaders = [replace(subject, entry=entry) for entry in subject.catalogue.entries("core.weight_loaders")]
    loaders = [one for one in loaders if not one.spec(WeightLoaderSpec).invents]
    others = [replace(subject, entry=entry) for entry in subject.catalogue.entries(subject.entry.group)]
    others = [one for one in others if one.spec(QuantSpec).methods & subject.spec(QuantSpec).methods]
    names = set()
    for owner in (subject, *loaders, *others):
        mine = owner.package == subject.package
        for sample in owner.samples(CheckpointSample):
            if not sample.layers or not (sample.values or sample.reference) or (owner.package, sample.name) in names:
                continue
            names.add((owner.package, sample.name))
            path = sample.write(subject.folder())
            case = _case(subject, sample, path, loaders)
            # A method need not read every form that others have samples of, but it says so when it is asked.
            if case is not None and (mine or verdict_on(subject, case.config).ok):
                yield case


def _case(subject: Subject, sample: CheckpointSample, path: Path, loaders: Sequence[Subject]) -> Case | None:
    for loader in loaders:
        reader: CheckpointReader = loader.impl()()
        if not reader.recognises(path):
            continue
        info = reader.inspect(path)
        if info.quantization not in subject.spec(QuantSpec).methods:
            continue
        tolerance = sample.apply_tolerance
        if subject.spec(QuantSpec).needs_request(info.quantization):
            tolerance = max([tolerance, *(one.tolerance for one in subject.samples(RoundingSample))])
        return Case(
            sample.name,
            info.quantization_config,
            partial(reader.tensors, path, _ignore),
            {} if sample.values is None else sample.values(),
            sample.layers,
            tolerance,
            reference=sample.reference,
        )
    return None


def _ignore(num_bytes: int) -> None:
    """Stand in for a progress display."""
