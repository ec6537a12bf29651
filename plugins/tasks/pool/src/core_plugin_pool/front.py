"""The front half: a model that pools, and what reads data for it."""

from __future__ import annotations

from core.api.fronts import TaskFrontSetup
from core.api.io_processors import IOContext
from core.api.shapes import PoolingShape
from core_plugin_pool.data import DataPooling
from core_plugin_pool.model import PoolingModel

PROCESSORS = "core.io_processors"


def pooling_model(setup: TaskFrontSetup) -> PoolingModel:
    """Return the front half. Raises `PluginError`: the I/O processor cannot be made."""
    shape = PoolingShape.model_validate(setup.data)
    model = PoolingModel(setup.model_name, shape, setup.inputs, setup.shape.hidden_size)
    context = IOContext(
        model_name=setup.model_name,
        model_config=setup.model_config,
        tasks=model.encodings,
        labels=shape.labels,
        max_model_len=setup.inputs.max_model_len,
        tokenizer=setup.inputs.tokenizer,
    )
    for chosen in setup.driven(PROCESSORS, context):
        model.data = DataPooling(chosen, model)
    return model
