"""A model's forward pass, compiled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import torch
from torch._dynamo.exc import TorchDynamoException

from core_plugin_torch_compile.measure import Comparison
from core_plugin_torch_compile.operations import use
from core_plugin_torch_compile.options import LOGGER
from core_plugin_torch_compile.sources import key_of
from core_plugin_torch_compile.spans import in_spans
from core_plugin_torch_compile.step import traced
from core_plugin_torch_compile.store import Store, folder

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.layers import StepInputs
    from core_plugin_torch_compile.options import CompileOptions

_LOG = logging.getLogger(LOGGER)

LAYERS = 4096
"""Forms of one piece of code: each layer of a model has its own. torch would give up after eight."""


class CompiledForward:
    """Compiles what a step calls when it is first called, and keeps the result for later starts.

    Attributes:
        graphs: Pieces compiled so far.
        seconds: What that took.
    """

    def __init__(self, model: Any, info: Mapping[str, Any], options: CompileOptions) -> None:
        self._plain: Callable[[StepInputs], Tensor] = model.forward
        self._name = options.backend
        self._make = torch._dynamo.lookup_backend(options.backend)
        config: Any = torch._dynamo.config
        config.recompile_limit = max(config.recompile_limit, LAYERS)
        config.accumulated_recompile_limit = max(config.accumulated_recompile_limit, LAYERS)
        # Numbers and sizes of layers are constants, of which kernels are made: only tokens differ, as `traced` says.
        config.specialize_float = True
        self._traced = torch.compile(self._plain, backend=self._backend)
        self._compiled: Callable[[StepInputs], Tensor] = self._whole
        self.graphs, self.seconds, self._told = 0, 0.0, 0
        self._comparison = Comparison(options.measure)
        self._store = Store(folder()) if options.cache else None
        self._key = key_of(model, info, options.backend)
        self._before = 0.0 if self._store is None else self._load(self._store)

    def __call__(self, step: StepInputs) -> Tensor:
        """Return the final hidden states, `(tokens, hidden)`."""
        before, start = self.graphs, perf_counter()
        hidden = self._run(step)
        if self.graphs > before:
            self.seconds += perf_counter() - start
        elif self.graphs > self._told:  # the first step that had nothing to compile
            self._tell()
        return hidden

    def _whole(self, step: StepInputs) -> Tensor:
        use(step.plans)
        return self._traced(cast("StepInputs", traced(step)))

    def _run(self, step: StepInputs) -> Tensor:
        """Run a step, compiled if that can be.

        A step that fails while it is compiled is begun again: it writes the same keys and values, but states twice.
        """
        try:
            if self._comparison.wants(step):
                return self._comparison.run(self._plain, self._compiled, step)
            return self._compiled(step)
        except TorchDynamoException as error:
            if step.states is not None:
                raise
            text = " ".join(str(error).split())
            _LOG.warning("torch_compile: this model cannot be compiled here, and runs as it is (%.300s)", text)
            self._compiled, self._comparison = self._plain, Comparison(0)
            return self._plain(step)

    def _backend(self, module: Any, inputs: list[Tensor], **named: Any) -> Callable[..., Any]:
        found = in_spans(module, partial(self._make, **named))
        if found is not None:
            made, pieces = found
            self.graphs += pieces
            return made
        self.graphs += 1
        whole: Callable[..., Any] = self._make(module, inputs, **named)
        return whole

    def _load(self, store: Store) -> float:
        """Give torch what an earlier start compiled; return the seconds that this took then, 0 if there is nothing."""
        found = store.load(self._key)
        if found is None:
            return 0.0
        data, seconds = found
        try:
            torch.compiler.load_cache_artifacts(data)
        except Exception as error:  # of another torch, or not what it was: compiled anew
            _LOG.warning("torch_compile: what was compiled earlier cannot be used (%s); it is compiled anew.", error)
            return 0.0
        return seconds

    def _tell(self) -> None:
        """Say what was compiled, and keep it."""
        self._told = self.graphs
        earlier = f", instead of {self._before:.2f} s without what an earlier start left" if self._before else ""
        _LOG.info("torch_compile: %d pieces by %s in %.2f s%s.", self.graphs, self._name, self.seconds, earlier)
        if self._store is not None:
            self._keep(self._store)

    def _keep(self, store: Store) -> None:
        try:
            saved = torch.compiler.save_cache_artifacts()
        except Exception as error:
            _LOG.warning(
                "torch_compile: what was compiled cannot be kept (%s). Set torch_compile.cache=false to have it "
                "compiled at each start, choose another torch_compile.backend, or report it to the plugin's authors.",
                error,
            )
            return
        if saved is not None:
            store.save(self._key, saved[0], max(self._before, self.seconds))
