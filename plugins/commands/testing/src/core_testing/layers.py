"""Layers filled from tensors, for the tests of formats and products."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from core.api.models import WeightRules
from core.api.products import ProductPlace
from core.api.quantization import Format, LayerSite, QuantContext
from core.layers.guard import LayerContext
from core.layers.linear import Embedding, Linear, ProductLayer
from core.layers.weights import WeightGroup
from core.ops.products import ReferenceProduct
from core.worker.loading.fill import WeightFiller
from core.worker.loading.names import NameMap
from core_testing.conformance.tools.tensors import PlainTensor

if TYPE_CHECKING:
    from core.api.products import Product
    from core.api.weights import WeightTensor
    from core.layers.cuts import Cuts
    from core.layers.params import Group
    from core_testing.conformance.device_samples import CheckpointSample

__all__ = ["PlainTensor", "fill", "make_layer", "sample_layer"]


def make_layer(
    form: Format,
    site: LayerSite,
    *,
    cuts: Cuts | None = None,
    product: Callable[[ProductPlace], Product] | None = None,
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float32,
    method: str = "none",
) -> ProductLayer:
    """Return a layer whose weights a format reads, without weights.

    Args:
        cuts: What of the checkpoint's tensors the layer takes; all of them by default.
        product: Makes what multiplies with them; the reference product by default.
        device, dtype: What the format was made with; the host's by default.
        method: The checkpoint's quantization method.
    """
    context = LayerContext(device or torch.device("cpu"), dtype)
    forms = tuple(form.form(site, name) for name, _ in site.parts)
    place = ProductPlace(site, forms, context.device, dtype, method)
    made = ReferenceProduct(place, {}) if product is None else product(place)
    group = WeightGroup(site, form, made, ("the format", "the product"), cuts)
    return Embedding(site, group, context) if site.kind == "embedding" else Linear(site, group, context)


def fill(group: Group, tensors: Iterable[WeightTensor], device: torch.device | None = None) -> None:
    """Fill every layer that reads `group`, as core does; of `tensors` those count that it asks for.

    Raises:
        CheckpointError: As `WeightFiller.fill`.
    """
    wanted = set(group.targets())
    filler = WeightFiller([group], NameMap(WeightRules(), ()), device or torch.device("cpu"))
    filler.fill(tensor for tensor in tensors if tensor.name in wanted)


def sample_layer(
    form: type[Format],
    sample: CheckpointSample,
    site: LayerSite,
    folder: Path,
    *,
    dtype: torch.dtype = torch.float32,
    options: Mapping[str, object] | None = None,
) -> ProductLayer:
    """Return a layer of a sample's safetensors files, which are written to `folder`."""
    from safetensors.torch import load_file

    path = sample.write(folder)
    config: dict[str, Any] = json.loads((path / "config.json").read_text())["quantization_config"]
    layer = make_layer(form(QuantContext(torch.device("cpu"), dtype, config, options or {})), site, dtype=dtype)
    fill(layer.group, [PlainTensor(*pair) for pair in load_file(path / "model.safetensors").items()])
    return layer
