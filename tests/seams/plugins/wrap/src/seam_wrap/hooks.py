"""Wraps the layers that make queries, keys and values: theirs have the other sign, and other tokens come out."""

from core.api import LayerSite, hookimpl


class Negated:
    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def apply(self, x, params):
        return -self._inner.apply(x, params)


@hookimpl
def core_layer(site, layer):
    return Negated(layer) if isinstance(site, LayerSite) and site.prefix.endswith("self_attn") else None
