"""Choosing how the checkpoint's weights are read and computed with."""

from __future__ import annotations

from collections.abc import Mapping

from core.api.descriptors import QuantSpec
from core.api.errors import CoreError, PluginError
from core.api.forms import WeightForm
from core.api.quantization import QuantRequest
from core.api.verdict import Verdict
from core.api.weights import CheckpointInfo
from core.config.resolved import Options
from core.plugins.drivers import Candidate, guarded, load_impl, typed
from core.plugins.kinds import QUANTIZATION
from core.plugins.known import Table, advice
from core.plugins.options import checked_options, given_options, shown
from core.selection.foundation import Foundation, refined
from core.selection.report import SelectionReport
from core.selection.select import Selector, is_auto, nothing_serves


def choose_quantization(selector: Selector, options: Options, base: Foundation) -> Candidate:
    """Return the method that reads the checkpoint's weights. Raises `CoreError` if there is none."""
    method, device = base.checkpoint.quantization, base.device
    dtype, asked = options.model.dtype, not is_auto(options.select.quantization)
    wanted = QuantRequest(method, device, dtype, base.checkpoint.quantization_config)

    def check(candidate: Candidate) -> Verdict:
        spec = candidate.spec(QuantSpec)
        verdict = wanted.check(spec, base.probe)
        only = f"used only as {QUANTIZATION.flag} {spec.name}" if spec.needs_request(method) and not asked else None
        verdict = Verdict.of(*verdict.reasons, only)
        return refined(candidate, spec.refine, wanted, base.probe) if verdict.ok else verdict

    def none(report: SelectionReport) -> CoreError:
        error = nothing_serves(report)
        installed = selector.catalogue.distributions()
        known = [row for row in Table.read().reading(method) if row.dist not in installed]
        file = base.checkpoint.config_file or base.checkpoint.path
        text = (
            f"{file}, 'quantization_config': {error.message}" if base.checkpoint.quantization_config else error.message
        )
        return PluginError(error.code, text, hint=advice(known, method) or error.hint)

    request = {"method": method, "device": device, "dtype": dtype}
    subject = f"{method}, {device}"
    chosen = selector.choose(
        QUANTIZATION, options.select.quantization, check=check, subject=subject, request=request, none=none
    )
    given = given_options(chosen.entry, options.runtime.plugin_options)
    if settled := checked_options(chosen, given):
        selector.reports[-1].notes.append(f"options of '{chosen.entry.name}': {shown(settled)}")
    return chosen


def stored_forms(method: Candidate, checkpoint: CheckpointInfo) -> Mapping[WeightForm, int]:
    """Return the forms of a checkpoint's matrices, as far as its quantization method can tell from the headers.

    Each has the number of matrices, 0 where that is unknown; empty where the method does not tell.

    Raises:
        PluginError: The method's function cannot be imported (CORE-P103), raises, or gives something else (CORE-P108).
    """
    path, entry = method.spec(QuantSpec).forms_of, method.entry
    if path is None:
        return {}
    found = typed(entry, path, guarded(entry, path, load_impl(path, entry), checkpoint), dict)
    for form in found:
        typed(entry, path, form, WeightForm)
    return found
