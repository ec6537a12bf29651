"""Every kind that a user can choose: by flag, variable and file; lists, `name@distribution`, and wrong names."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.api.descriptors import DESCRIPTORS
from core.api.errors import CoreError
from core.config.fields import fields_by_path
from core.config.flags import add_option_flags
from core.config.load import load_options
from core.config.parser import CoreParser
from core.plugins.kinds import COMMAND, FLAG_DIALECT, HOOKS, KERNEL, KINDS, OPTION_SECTION, TASK
from core.selection.resolver import resolve

FIELDS = {
    "core.platforms": "device_type='host', probe='world.impl:probe_host', dtypes=('bfloat16',)",
    "core.attention_backends": "devices={'host'}, dtypes={'bfloat16'}, kv_dtypes={'bfloat16'}",
    "core.quantization": "methods={'none'}",
    "core.models": "architectures=('LlamaForCausalLM',), shape='world.impl:shape'",
    "core.weight_loaders": "patterns=('*.txt',)",
    "core.kv_connectors": "worker_impl='world.impl:Nothing'",
    # All kernels that fit take part unnamed, so that the two called `twin` would have to be told apart in every start.
    "core.kernels": "op='rms_norm', devices={'host'}, dtypes={'bfloat16'}, maturity='experimental'",
    "core.structured_output": "grammars={'regex'}",
    "core.tasks": "worker_impl='world.impl:Nothing', front_impl='world.impl:Nothing', choose='world.impl:no_task'",
}
"""What a descriptor of each kind needs besides the common fields, to serve in the small world."""

IMPLEMENTATIONS = {"core.weight_loaders": "world.impl:Reader", "core.model_sources": "world.impl:Demo"}
BESIDE = {"core.io_processors": ("--runner", "pooling")}
"""What must be said besides, so that a model has a use for the kind."""
CHOSEN = [kind for kind in KINDS.values() if kind.option]
SINGLE = [kind for kind in CHOSEN if fields_by_path()[f"select.{kind.option}"].kind == "str"]
MANY = [kind for kind in CHOSEN if fields_by_path()[f"select.{kind.option}"].kind == "list" and kind is not KERNEL]


def of_every_kind(kinds):
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.group.removeprefix("core."))


@pytest.fixture
def world(site):
    """`twin` of acme and of bolt, `other` of acme, and `unfit`, which lacks a library; of every kind."""
    site.install_world()
    site.install("pooler", {"core.tasks": {"pool": "core_plugin_pool.manifest:POOL"}})  # I/O processors need one
    for dist, names in {"acme": ("twin", "other", "unfit"), "bolt": ("twin",)}.items():
        lines, points = ["from core.api import *"], {}
        for group, kind in DESCRIPTORS.items():
            if group == OPTION_SECTION.group:
                continue  # nothing chooses among them: two of one name stop every start
            for name in names:
                constant = f"{kind.__name__}_{name}".upper()
                requires = ", requires=('no-such-thing>=3',)" if name == "unfit" else ""
                impl, api = IMPLEMENTATIONS.get(group, "world.impl:Nothing"), KINDS[group].api
                common = f"name={name!r}, impl={impl!r}, api={api}, summary=''"
                lines.append(f"{constant} = {kind.__name__}({common}{requires}, {FIELDS.get(group, '')})")
                points.setdefault(group, {})[name] = f"{dist}_manifest:{constant}"
        site.install(dist, points, {f"{dist}_manifest": "\n".join(lines)})
    return site


@pytest.fixture
def start(world):
    """Resolve as `core serve WORD...` would; return the plugins of a group as `name@distribution`."""

    def start(group, *words, **environ):
        parser = CoreParser(prog="core serve")
        add_option_flags(parser, positional_model=True)
        options = load_options(parser.parse_args([*BESIDE.get(group, ()), *words]), environ).options
        plan = resolve(options, catalogue=world.catalogue()).config.plan
        return [f"{one.name}@{one.dist}" for one in plan.of(group)]

    return start


def written(kind, *names):
    """The names as the option wants them: a kernel is named with its operation."""
    first, *rest = names
    return [f"rms_norm={first}" if kind is KERNEL else first, *rest]


def config(path: Path, kind, value) -> str:
    file = path / "core.toml"
    file.write_text(f"[select]\n{kind.option} = {value!r}\n")
    return str(file)


def test_every_kind_has_a_flag_but_those_that_are_there_where_they_are_installed():
    assert {kind for kind in KINDS.values() if not kind.option} == {COMMAND, FLAG_DIALECT, OPTION_SECTION, TASK, HOOKS}
    for kind in CHOSEN:
        field = fields_by_path()[f"select.{kind.option}"]
        assert (field.flag, field.env) == (kind.flag, f"CORE_{kind.option.upper()}")


@pytest.mark.covers("CLI-01", "CLI-03")
@of_every_kind([*SINGLE, *MANY, KERNEL])
def test_flag_variable_and_file_name_a_plugin_of_a_distribution(start, kind, tmp_path):
    for dist in ("acme", "bolt"):
        (ask,) = written(kind, f"twin@{dist}")
        expected = [f"twin@{dist}"]
        assert start(kind.group, kind.flag, ask) == expected
        assert start(kind.group, **{f"CORE_{kind.option.upper()}": ask}) == expected
        assert start(kind.group, "--config", config(tmp_path, kind, ask)) == expected
    (other,) = written(kind, "other")
    assert start(kind.group, kind.flag, other, **{f"CORE_{kind.option.upper()}": "no-such"}) == ["other@acme"]


@pytest.mark.covers("CLI-02")
@of_every_kind([*SINGLE, KERNEL])
def test_a_list_means_the_first_that_can_serve(start, kind, tmp_path):
    asks = written(kind, "unfit", "twin@bolt", "other")
    # What comes second serves the grammars that the first one cannot compile, the layers whose sizes it does not take.
    serves_beside = kind.option in ("structured_output", "kernel")
    expected = ["twin@bolt", "other@acme"] if serves_beside else ["twin@bolt"]
    assert start(kind.group, kind.flag, ",".join(asks)) == expected
    assert start(kind.group, **{f"CORE_{kind.option.upper()}": ", ".join(asks)}) == expected
    assert start(kind.group, "--config", config(tmp_path, kind, asks)) == expected


@of_every_kind(MANY)
def test_where_several_take_part_a_list_means_all_of_them(start, kind, tmp_path):
    assert start(kind.group, kind.flag, "other,twin@bolt") == ["other@acme", "twin@bolt"]
    assert start(kind.group, "--config", config(tmp_path, kind, ["twin@bolt", "other"])) == ["twin@bolt", "other@acme"]


@of_every_kind([*SINGLE, *MANY, KERNEL])
def test_an_unknown_name_is_an_error_with_the_nearest_name_and_every_reason(start, kind):
    (ask,) = written(kind, "othr")
    with pytest.raises(CoreError) as caught:
        start(kind.group, kind.flag, ask)
    error = caught.value
    assert error.code == "CORE-P101" and f"no {kind.label} named 'othr'" in error.message
    assert "Did you mean 'other'?" in error.hint
    assert "unfit (acme 1.0): it needs no-such-thing>=3, which is not installed" in error.hint
    if kind is not KERNEL:
        assert "Supported alternatives here: " in error.hint and "other" in error.hint.partition("here: ")[2]


@of_every_kind([*SINGLE, *MANY, KERNEL])
def test_what_cannot_serve_or_is_not_clear_is_an_error(start, kind):
    for name, code in (("unfit", "CORE-P105"), ("twin", "CORE-P102"), ("twin@nobody", "CORE-P101")):
        (ask,) = written(kind, name)
        with pytest.raises(CoreError) as caught:
            start(kind.group, kind.flag, ask)
        assert caught.value.code == code
        assert ("acme 1.0" if name != "twin@nobody" else "it comes from acme, bolt") in caught.value.message


def test_a_further_flag_of_a_kind_allows_what_it_names(start):
    words = ["--reasoning-parser", "twin@bolt", "--plugins", "core-plugin-world"]
    assert start("core.tool_parsers", *words) == ["twin@bolt"]


def test_sources_are_asked_in_the_order_given_and_nobody_else(start):
    assert start("core.model_sources", "demo", "--model-source", "files,twin@bolt") == ["twin@bolt"]
    with pytest.raises(CoreError) as caught:
        start("core.model_sources", "demo", "--model-source", "files")
    assert caught.value.code == "CORE-M101" and "Sources asked: files." in caught.value.message


def test_kernels_may_end_in_the_reference_form(start):
    assert start(KERNEL.group, "--kernel", "rms_norm=unfit,reference") == []
    assert start(KERNEL.group, "--kernel", "rms_norm=other,reference") == ["other@acme"]
    with pytest.raises(CoreError, match="CORE-C142"):
        start(KERNEL.group, "--kernel", "other")


@pytest.mark.parametrize("name", ["CORE_SCHEDULER_POLICY", "CORE_SCHEDULING_POLICY"])
def test_the_spellings_of_another_server_hold_for_variables_and_files(start, name, tmp_path):
    assert start("core.schedulers", **{name: "other"}) == ["other@acme"]
    for key in ("scheduling_policy", "select.scheduling-policy", "scheduler-policy"):
        (tmp_path / "core.yaml").write_text(f"{key}: [unfit, other]\n")
        assert start("core.schedulers", "--config", str(tmp_path / "core.yaml")) == ["other@acme"]
    with pytest.raises(CoreError, match=r"CORE-C109 variables CORE_SCHEDULER_POLICY and CORE_SCHEDULING_POLICY"):
        start("core.schedulers", CORE_SCHEDULER_POLICY="other", CORE_SCHEDULING_POLICY="twin@bolt")
