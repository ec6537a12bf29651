"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import StructuredOutputSpec

XGRAMMAR = StructuredOutputSpec(
    name="xgrammar",
    impl="core_plugin_xgrammar.backend:XGrammar",
    api=1,
    summary="XGrammar: masks from pushdown automata, compiled once per grammar",
    grammars={"json_schema", "json_object", "regex", "choice", "grammar", "structural_tag"},
    requires=("xgrammar==0.2.8", "apache-tvm-ffi>=0.1.11"),
    isolate=True,
    priority=50,
)
