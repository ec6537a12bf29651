"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import QuantSpec, WeightLoaderSpec

GGUF = QuantSpec(
    name="gguf",
    impl="core_plugin_gguf.scheme:GGUFFormat",
    forms_of="core_plugin_gguf.forms:forms_of",
    api=2,
    summary="GGUF block formats (Q4_0 ... Q8_0, K-quants, IQ)",
    band=1,
    methods=frozenset({"gguf"}),
    refine="core_plugin_gguf.formats:refine",
)

GGUF_READER = WeightLoaderSpec(
    name="gguf",
    impl="core_plugin_gguf.reader:GGUFReader",
    api=1,
    summary="GGUF files, single or split: configuration, tokenizer, chat template, tensors",
    patterns=("*.gguf",),
)
