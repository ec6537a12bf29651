"""`core serve` on a tiny checkpoint of each family: the tokens that a client gets are those of the reference."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from core_testing.families import logits_of

PLUGINS = Path(__file__).resolve().parents[2] / "plugins" / "models"
QUICK = ("gpt2", "gemma3", "mpt", "bridged_helium")
"""Unlike ones: learned positions; windows and two rotations; ALiBi and fused projections; transformers' own model."""

PROMPT = [3 + (7 * place * place + 5 * place) % 300 for place in range(19)]
COUNT = 6
FLAGS = (
    "--threads",
    "1",
    "--dtype",
    "float32",
    "--num-blocks",
    "20",
    "--max-model-len",
    "64",
    "--served-model-name",
    "m",
)


def rows():
    """Yield the rows of all families, those that are not in `QUICK` marked as exhaustive."""
    for path in sorted(PLUGINS.glob("*/tests/rows.py")):
        spec = spec_from_file_location(f"served_rows_of_{path.parts[-3]}", path)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        for row in module.ROWS:
            yield pytest.param(row, id=row.name, marks=() if row.name in QUICK else pytest.mark.exhaustive)


@pytest.fixture
def server(launch):
    """`server(*words)` starts a server that ends with the test, not with the module: there are many."""
    started = []

    def start(*words):
        started.append(launch(*words).wait_ready())
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.mark.covers("MODEL-04")
@pytest.mark.parametrize("row", [*rows()])
def test_a_family_is_served(row, server, tmp_path):
    model = row.model()
    directory = row.write(tmp_path / "model", model)
    (directory / "generation_config.json").write_text('{"temperature": 0.0}')
    due = list(PROMPT)
    for _ in range(COUNT):
        due.append(int(logits_of(model, due)[-1].argmax()))
    implementation = () if row.model_impl is None else ("--model-impl", row.model_impl)
    running = server(str(directory), *FLAGS, *implementation)
    body = {"model": "m", "prompt": PROMPT, "max_tokens": COUNT, "ignore_eos": True, "logprobs": 1}
    with running.http() as http:
        answer = http.post("/v1/completions", json={**body, "return_tokens_as_token_ids": True})
        assert answer.status_code == 200, answer.text
        (choice,) = answer.json()["choices"]
        assert choice["logprobs"]["tokens"] == [f"token_id:{token}" for token in due[len(PROMPT) :]]
        messages = [{"role": "user", "content": "a"}]
        chat = http.post("/v1/chat/completions", json={"model": "m", "messages": messages, "max_tokens": 2})
        assert chat.status_code == 200 and chat.json()["usage"]["completion_tokens"] > 0, chat.text


def test_the_quick_ones_are_there():
    assert set(QUICK) <= {row.id for row in rows()}
