"""Every hook at once; what happens is decided by the lists that a test fills."""

from core.api import (
    AttentionSite,
    ConfigPatch,
    Finding,
    Problem,
    Reject,
    RequestPatch,
    Waiver,
    WrappedProduct,
    hookimpl,
)

CALLS = {"layer": {}, "loaded": [], "events": [], "requests": [], "callers": []}
WAIVED = {}
PROBLEMS = []
FINDINGS = []
PATCHES = []


class CountingProduct(WrappedProduct):
    """A `Product` that counts how often it multiplies."""

    def __init__(self, name, inner):
        super().__init__(inner)
        self.name = name
        CALLS["layer"][name] = 0

    def apply(self, x, params):
        CALLS["layer"][self.name] += 1
        return super().apply(x, params)


class CountingLayer:
    """An `AttentionLayer` that counts what it is asked."""

    def __init__(self, name, inner):
        self.name, self.inner = name, inner
        CALLS["layer"][name] = 0

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def forward(self, q, kv, plan):
        CALLS["layer"][self.name] += 1
        return self.inner.forward(q, kv, plan)


@hookimpl
def core_layer(site, layer):
    if isinstance(site, AttentionSite):
        return CountingLayer(f"attention {site.layer}", layer)
    return CountingProduct(site.prefix, layer) if site.prefix.endswith("o_proj") else None


@hookimpl
def core_model_loaded(model, info):
    CALLS["loaded"].append((type(model).__name__, dict(info)))


@hookimpl
def core_engine_event(event):
    CALLS["events"].append(event)


@hookimpl
def core_configure():
    return [ConfigPatch(path="scheduler.max_chunk", value=32, reason="seams", strength="advice")] if PATCHES else None


@hookimpl
def core_validate():
    return [Problem(level="error", code="SEAM-1", message=text) for text in PROBLEMS]


@hookimpl
def core_waive(problem):
    return Waiver(reason=WAIVED[problem.code]) if problem.code in WAIVED else None


@hookimpl
def core_request(request):
    CALLS["requests"].append(len(request.prompt_token_ids))
    CALLS["callers"].append(request.caller)
    extra = len(request.prompt_token_ids)
    if extra == 13:
        return Reject("thirteen tokens bring bad luck", status=403, code="superstition")
    return RequestPatch({"max_tokens": 3}, priority=extra) if extra == 7 else None


@hookimpl
def core_doctor():
    return [Finding(level="warning", message=text, hint="look") for text in FINDINGS]
