"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

_FAMILIES = ("Bert", "Roberta", "XLMRoberta", "DistilBert", "MPNet")
_KINDS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")

BERT = ModelSpec(
    name="bert",
    impl="core_plugin_bert.model:Encoder",
    api=2,
    summary="BERT, RoBERTa, XLM-RoBERTa, DistilBERT and MPNet encoders",
    architectures=tuple(family + kind for family in _FAMILIES for kind in _KINDS),
    shape="core_plugin_bert.config:shape",
    tasks=frozenset({"embed", "classify"}),
)

COLBERT = ModelSpec(
    name="colbert",
    impl="core_plugin_bert.model:Encoder",
    api=2,
    summary="ColBERT: BERT with a vector for each token, compared token by token",
    architectures=("HF_ColBERT",),
    shape="core_plugin_bert.config:shape",
    tasks=frozenset({"embed"}),
)

MODERNBERT = ModelSpec(
    name="modernbert",
    impl="core_plugin_bert.modern:ModernEncoder",
    api=2,
    summary="ModernBERT encoders: rotary positions, local and global attention",
    architectures=tuple(f"ModernBert{kind}" for kind in _KINDS),
    shape="core_plugin_bert.modern_config:shape",
    tasks=frozenset({"embed", "classify"}),
)

GTE = ModelSpec(
    name="gte",
    impl="core_plugin_bert.gte:GteEncoder",
    api=2,
    summary="GTE encoders: rotary positions, gated MLPs",
    architectures=tuple(f"Gte{kind}" for kind in _KINDS),
    shape="core_plugin_bert.gte_config:shape",
    tasks=frozenset({"embed", "classify"}),
)

GTE_NEW = ModelSpec(
    name="gte-new",
    impl="core_plugin_bert.gte:GteEncoder",
    api=2,
    summary="GTE encoders by the names that their makers' own code has",
    architectures=tuple(f"{family}{kind}" for family in ("New", "GteNew") for kind in _KINDS),
    shape="core_plugin_bert.gte_config:shape",
    tasks=frozenset({"embed", "classify"}),
)

NOMICBERT = ModelSpec(
    name="nomicbert",
    impl="core_plugin_bert.nomic:NomicEncoder",
    api=2,
    summary="Nomic BERT and Jina Embeddings v3: rotary positions, MLPs with gates or without",
    architectures=tuple(family + kind for family in ("NomicBert", "JinaEmbeddingsV3") for kind in _KINDS),
    shape="core_plugin_bert.nomic_config:shape",
    tasks=frozenset({"embed", "classify"}),
)
