"""The rows of all families, in `plugins/models/*/tests/rows.py`, and checkpoints of them.

`ROWS` are models that generate; `POOLED`, where there are any, those that embed or classify. `make test` takes the
first row of each plugin, or of each architecture where a test is marked `each_architecture`; `make test-all` takes all.
"""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

PLUGINS = Path(__file__).resolve().parents[3] / "plugins" / "models"


def load(name, path):
    spec = spec_from_file_location(name, path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(table):
    """Return the rows of a table by name, and the plugin of each."""
    found, plugins = {}, {}
    for path in sorted(PLUGINS.glob("*/tests/rows.py")):
        module = load(f"rows_of_{path.parts[-3]}", path)
        for row in vars(module).get(table, ()):
            assert row.name not in found, row.name
            found[row.name], plugins[row.name] = row, path.parts[-3]
    return found, plugins


(ROWS, PLUGIN), (POOLED, _) = rows("ROWS"), rows("POOLED")
GGUF = load("gguf_forms", Path(__file__).with_name("gguf_forms.py"))
FURTHER = [
    *GGUF.FURTHER,
    GGUF.whole(ROWS["baichuan_13b"], num_hidden_layers=40),
    GGUF.whole(ROWS["minimax_factors"], **GGUF.gguf_states.MINIMAX_FACTORS),
    GGUF.sized(ROWS["deci_nas"]),
]
STORED = {row.name: row for row in [*FURTHER, *ROWS.values()] if {row.name, row.architecture} & GGUF.FORMS.keys()}


RECURRENT = {
    *("MambaForCausalLM", "FalconMambaForCausalLM", "Mamba2ForCausalLM", "BambaForCausalLM", "JambaForCausalLM"),
    *("FalconH1ForCausalLM", "GraniteMoeHybridForCausalLM", "NemotronHForCausalLM", "Zamba2ForCausalLM"),
    *("Plamo2ForCausalLM", "MiniMaxForCausalLM", "MiniMaxText01ForCausalLM", "MiniMaxM1ForCausalLM"),
    *("Qwen3NextForCausalLM", "Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM", "KimiLinearForCausalLM"),
    *("Lfm2ForCausalLM", "Lfm2MoeForCausalLM", "RecurrentGemmaForCausalLM"),
}
"""Architectures with states."""


def form_of(row):
    """Return how a row becomes a GGUF file."""
    return GGUF.FORMS.get(row.name) or GGUF.FORMS[row.architecture]


def pytest_generate_tests(metafunc):
    if "stored" in metafunc.fixturenames:
        found = [row for row in STORED.values() if row.name not in GGUF.NOT_IN_FILES]
        values = [(row, form_of(row)) for row in found]
        metafunc.parametrize("stored", quick(found, values, [row.architecture for row in found]))
    if "row" in metafunc.fixturenames:
        each = metafunc.definition.get_closest_marker("each_architecture") is not None
        kin = [row.architecture if each else PLUGIN[row.name] for row in ROWS.values()]
        metafunc.parametrize("row", quick(ROWS.values(), ROWS.values(), kin), scope="module")
    if "recurrent" in metafunc.fixturenames:
        found = [row for row in ROWS.values() if row.architecture in RECURRENT]
        metafunc.parametrize("recurrent", quick(found, found, [PLUGIN[row.name] for row in found]), indirect=True)
    if "pooled" in metafunc.fixturenames:
        metafunc.parametrize("pooled", POOLED.values(), ids=POOLED.keys())


def quick(rows, values, kin):
    """Return parameters of rows; all but the first row of each kin are exhaustive."""
    met, found = set(), []
    for row, value, own in zip(rows, values, kin, strict=True):
        found.append(pytest.param(value, id=row.name, marks=pytest.mark.exhaustive if own in met else ()))
        met.add(own)
    return found


class Made:
    """A row's reference and checkpoint."""

    def __init__(self, row, directory):
        self.row, self.model = row, row.model()
        self.directory = row.write(directory, self.model)


@pytest.fixture(scope="module")
def made(row, tmp_path_factory):
    return Made(row, tmp_path_factory.mktemp("families") / row.name)


@pytest.fixture(scope="module")
def recurrent(request, tmp_path_factory):
    return Made(request.param, tmp_path_factory.mktemp("recurrent") / request.param.name)


@pytest.fixture(scope="session")
def families():
    """The rows of models that generate, by name."""
    return ROWS
