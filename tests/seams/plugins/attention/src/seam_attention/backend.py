from core_plugin_torch_sdpa.backend import TorchSdpaBackend

from core.api import KVSpec

LOADED = []


class Traced(TorchSdpaBackend):
    def kv_spec(self, site):
        return KVSpec("full") if site.window is None else KVSpec("recent", site.window)

    def layer(self, site):
        return TracedLayer(site.layer, super().layer(site))


class TracedLayer:
    def __init__(self, number, inner):
        self.number = number
        self.write_kv, self.forward = inner.write_kv, inner.forward

    def after_load(self):
        LOADED.append(self.number)
