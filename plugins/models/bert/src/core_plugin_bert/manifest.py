"""What this distribution offers, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

_FAMILIES = ("Bert", "Roberta", "XLMRoberta", "DistilBert")
_KINDS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")

BERT = ModelSpec(
    name="bert",
    impl="core_plugin_bert.model:Encoder",
    api=1,
    summary="BERT, RoBERTa, XLM-RoBERTa and DistilBERT encoders",
    architectures=tuple(family + kind for family in _FAMILIES for kind in _KINDS),
    shape="core_plugin_bert.config:shape",
    tasks=frozenset({"embed", "classify"}),
)

MODERNBERT = ModelSpec(
    name="modernbert",
    impl="core_plugin_bert.modern:ModernEncoder",
    api=1,
    summary="ModernBERT encoders: rotary positions, local and global attention",
    architectures=tuple(f"ModernBert{kind}" for kind in _KINDS),
    shape="core_plugin_bert.modern_config:shape",
    tasks=frozenset({"embed", "classify"}),
)
