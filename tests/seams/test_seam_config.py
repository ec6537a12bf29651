"""Waivers, doctor findings, and kernels that a start may use."""

from __future__ import annotations

import pytest

from core.api import ConfigError, PluginError
from core.config.resolved import Options
from core.plugins.catalog import Catalogue
from core.plugins.hooks import Hooks
from core.selection.resolver import resolve


def _options(llama, **model):
    return Options.model_validate({"model": {"model": llama, "dtype": "float32", **model}})


def test_an_error_that_a_plugin_takes_on_becomes_a_warning_with_its_reason(plugins, llama):
    plugins("hooks")
    from seam_hooks import hooks

    hooks.PROBLEMS.append("the moon is full")
    with pytest.raises(ConfigError, match=r"SEAM-1 the moon is full \(says seam_hooks, seam-hooks 1.0\)"):
        resolve(_options(llama))
    hooks.WAIVED["SEAM-1"] = "curtains are drawn"
    warnings = [problem.message for problem in resolve(_options(llama)).warnings if problem.code == "SEAM-1"]
    assert len(warnings) == 1
    assert warnings[0].endswith("Waived by seam_hooks (seam-hooks 1.0): curtains are drawn")


def test_core_itself_can_be_waived(plugins, llama):
    plugins("hooks")
    from seam_hooks import hooks

    with pytest.raises(ConfigError, match="CORE-C110 max_model_len 300 is greater than the 256 positions"):
        resolve(_options(llama, max_model_len=300))
    hooks.WAIVED["CORE-C110"] = "positions are extrapolated"
    hooks.PATCHES.append(True)  # a second derivation must not warn twice
    resolution = resolve(_options(llama, max_model_len=300))
    assert resolution.config.max_model_len == 300
    assert sum("extrapolated" in problem.message for problem in resolution.warnings) == 1


def test_findings_of_plugins_are_collected(plugins):
    plugins("hooks")
    from seam_hooks import hooks

    hooks.FINDINGS.append("a fan is loud")
    found = Hooks(Catalogue.scan().entries("core.plugins")).doctor()
    assert [(entry.name, finding.level, finding.message) for entry, finding in found if entry.name == "seam_hooks"] == [
        ("seam_hooks", "warning", "a fan is loud")
    ]


def _kernels(llama, *asks):
    resolution = resolve(
        Options.model_validate({"model": {"model": llama, "dtype": "float32"}, "select": {"kernel": list(asks)}})
    )
    return [one.name for one in resolution.config.plan.of("core.kernels") if one.dist == "seam-kernels"], resolution


def test_kernels_are_ranked_and_the_reasons_are_kept(plugins, llama):
    plugins("kernels")
    names, resolution = _kernels(llama)
    assert names == ["wide_norm", "counted_norm", "counted_silu"]
    report, *of_forms = [report for report in resolution.reports if report.group == "core.kernels"]
    assert [one.subject.partition(",")[0] for one in of_forms] == ["weights plain"]
    reasons = {row.name: row.reasons for row in report.rows}
    assert reasons["tensor_norm"] == ("the device lacks tensor_unit",)


def test_a_commanded_kernel_stands_alone_for_its_operation(plugins, llama):
    plugins("kernels")
    names, _ = _kernels(llama, "rms_norm=counted_norm")
    assert set(names) == {"counted_norm", "counted_silu"}
    assert _kernels(llama, "rms_norm=reference")[0] == ["counted_silu"]


@pytest.mark.parametrize(
    ("ask", "error", "text"),
    [
        ("rms_norm", ConfigError, "CORE-C142 .*not OP=NAME"),
        ("rms_nrm=counted_norm", ConfigError, "CORE-C142 .*Did you mean 'rms_norm'"),
        ("rms_norm=missing", PluginError, "CORE-P101 no kernel named 'missing'"),
        ("rms_norm=tensor_norm", PluginError, "CORE-P201 .*the device lacks tensor_unit"),
        ("rms_norm=counted_silu", PluginError, "CORE-P201 .*is one of silu_and_mul, not of rms_norm"),
    ],
)
def test_a_kernel_that_cannot_be_had_stops_the_start(plugins, llama, ask, error, text):
    plugins("kernels")
    with pytest.raises(error, match=text):
        _kernels(llama, ask)


def test_two_kernels_for_one_operation_are_a_contradiction(plugins, llama):
    plugins("kernels")
    with pytest.raises(ConfigError, match="names two kernels for rms_norm: counted_norm and wide_norm"):
        _kernels(llama, "rms_norm=counted_norm", "rms_norm=wide_norm")
