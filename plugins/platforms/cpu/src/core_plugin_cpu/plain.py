"""Layers whose weights the checkpoint has as plain numbers: how every method of this distribution stores them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from core_plugin_cpu.forms import Blocks, Dense
from core_plugin_cpu.native.packed import Format
from core_plugin_cpu.packed_layers import PackedLayer

if TYPE_CHECKING:
    import torch

    from core.api import LayerSite
    from core_plugin_cpu.forms import Form
    from core_plugin_cpu.options import DenseOptions

_LOG = logging.getLogger(__name__)
_BLOCK = 32


class PlainForms:
    """Chooses how plain weights are packed: in the compute dtype, but for what the option `head` says.

    Args:
        driver: Name of the method that the options are for.
        asked: As in `PackedWeight`.
    """

    def __init__(self, driver: str, dtype: torch.dtype, options: DenseOptions, *, asked: int = 0) -> None:
        self._driver, self._dtype, self._asked = driver, dtype, asked
        self._rounds = options.head == "int8"

    def layer(self, site: LayerSite) -> PackedLayer:
        """Return how a layer of plain weights is stored."""
        return PackedLayer(site, self._dtype, [self.form(site)] * len(site.parts), asked=self._asked)

    def form(self, site: LayerSite) -> Form:
        """Return how each part of a layer is packed. An embedding and a head that is tied to it get one form."""
        if site.kind == "linear" or not self._rounds:
            return Dense(self._dtype)
        whole = site.in_features % _BLOCK == 0
        if site.kind == "lm_head":
            self._tell(site, whole)
        return Blocks(Format.Q8_0) if whole else Dense(self._dtype)

    def _tell(self, site: LayerSite, whole: bool) -> None:
        if whole:
            how = f"rounded to 8 bits in blocks of {_BLOCK}; {self._driver}.head=checkpoint keeps the checkpoint's"
        else:
            how = f"kept in {self._dtype}: {site.in_features} inputs are no whole blocks of {_BLOCK}"
        _LOG.info("output projection and embedding (%s.head=int8): %s", self._driver, how)
