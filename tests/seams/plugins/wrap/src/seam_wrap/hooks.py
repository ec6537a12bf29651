"""Wraps the products that make queries, keys and values: theirs have the other sign, and other tokens come out."""

from core.api import LayerSite, WrappedProduct, hookimpl


class Negated(WrappedProduct):
    def apply(self, x, params):
        return -self.inner.apply(x, params)


@hookimpl
def core_layer(site, layer):
    return Negated(layer) if isinstance(site, LayerSite) and site.prefix.endswith("self_attn") else None
