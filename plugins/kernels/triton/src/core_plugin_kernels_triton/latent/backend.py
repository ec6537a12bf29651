"""The part of the attention backend that has latent attention and picks."""

from __future__ import annotations

from core.api.attention import AttentionContext, KVLayout, LatentSite, PickSite
from core_plugin_kernels_triton.latent.layer import TritonLatent, layout
from core_plugin_kernels_triton.latent.picks import TritonPicker


class LatentBackend:
    """Caches of `(block_size, numbers of a token)`: latents with rotated keys behind, and index keys."""

    _ctx: AttentionContext

    def latent_layout(self, site: LatentSite) -> KVLayout:
        """Return the blocks of a latent layer."""
        return layout(site.latent_dim + site.rope_dim, self._ctx)

    def latent(self, site: LatentSite) -> TritonLatent:
        """Return the latent attention of one layer."""
        return TritonLatent(site, self._ctx)

    def picker_layout(self, site: PickSite) -> KVLayout:
        """Return the blocks of index keys."""
        return layout(site.key_dim, self._ctx)

    def picker(self, site: PickSite) -> TritonPicker:
        """Return what chooses positions."""
        return TritonPicker(site, self._ctx)
