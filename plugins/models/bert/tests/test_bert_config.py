"""Configurations of encoders, without torch."""

import subprocess
import sys

import pytest
from core_plugin_bert import config, modern_config
from core_plugin_bert.model import Encoder

from core.api import CheckpointError, config_labels

BERT = {
    "architectures": ["BertModel"],
    "vocab_size": 100,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 512,
}
MODERN = {**BERT, "architectures": ["ModernBertModel"], "max_position_embeddings": 8192}


def named(architecture, **changes):
    return {**BERT, "architectures": [architecture], **changes}


def test_nothing_of_it_needs_torch():
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from core_plugin_bert import config, manifest, modern_config\n"
        f"config.shape({BERT!r}); modern_config.shape({MODERN!r})\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_encoder_embeds_and_sees_ahead():
    shape = config.shape(dict(BERT))
    assert (shape.vocab_size, shape.max_positions, shape.num_layers, shape.head_dim) == (100, 512, 2, 12)
    assert shape.features == {"bidirectional"}
    assert (shape.pooling.task, shape.pooling.method, shape.pooling.bidirectional) == ("embed", "mean", True)
    assert shape.dtype == "float32"


@pytest.mark.parametrize(("architecture", "pad", "longest"), [("RobertaModel", 1, 510), ("XLMRobertaModel", 0, 511)])
def test_roberta_counts_from_behind_the_padding(architecture, pad, longest):
    assert config.shape(named(architecture, pad_token_id=pad)).max_positions == longest


def test_distilbert_has_names_of_its_own():
    own = {"dim": 24, "n_heads": 3, "n_layers": 5, "hidden_dim": 96}
    shape = config.shape({"architectures": ["DistilBertModel"], "vocab_size": 9, **own})
    assert (shape.hidden_size, shape.num_heads, shape.num_layers) == (24, 3, 5)
    assert config.EncoderConfig.read({"model_type": "distilbert", "vocab_size": 9, **own}).type_rows == 0


def test_local_layers_need_a_window():
    found = modern_config.ModernConfig.read(dict(MODERN, num_hidden_layers=4))
    assert [kind.partition("_")[0] for kind in found.kinds] == ["full", "sliding", "sliding", "full"]
    assert found.window == 129
    assert (found.ropes["full_attention"].theta, found.ropes["sliding_attention"].theta) == (160_000.0, 10_000.0)
    old = modern_config.ModernConfig.read(dict(MODERN, local_rope_theta=5.0, global_attn_every_n_layers=1))
    assert old.ropes["sliding_attention"].theta == 5.0
    assert modern_config.shape(dict(MODERN)).features == {"bidirectional", "sliding_window"}
    assert modern_config.shape(dict(MODERN, global_attn_every_n_layers=1)).features == {"bidirectional"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ("softmax", ("LABEL_0", "LABEL_1"))),
        ({"id2label": {"0": "bad", "1": "good", "2": "so so"}}, ("softmax", ("bad", "good", "so so"))),
        ({"num_labels": 1}, ("sigmoid", ("LABEL_0",))),
        ({"problem_type": "multi_label_classification"}, ("sigmoid", ("LABEL_0", "LABEL_1"))),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}, ("none", None)),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}, ("sigmoid", None)),
    ],
)
def test_what_a_head_gives(changes, expected):
    pooling = config.shape(named("BertForSequenceClassification", **changes)).pooling
    assert (pooling.task, pooling.method, pooling.activation) == ("classify", "cls", expected[0])
    assert expected[1] is None or pooling.labels == expected[1]


def test_modern_heads_may_want_the_mean():
    wanted = {"architectures": ["ModernBertForSequenceClassification"], "classifier_pooling": "mean"}
    assert modern_config.shape({**MODERN, **wanted}).pooling.method == "mean"


@pytest.mark.parametrize(
    "changes",
    [
        {"vocab_size": None},
        {"hidden_size": 0},
        {"position_embedding_type": "relative_key"},
        {"is_decoder": True},
        {"architectures": ["BertForSequenceClassification"], "id2label": {"1": "a"}},
        {"architectures": ["BertForSequenceClassification"], "id2label": {"x": "a"}},
        {"architectures": ["BertForSequenceClassification"], "sbert_ce_default_activation_function": "a.Tanh"},
    ],
)
def test_what_cannot_be_read_is_refused(changes):
    with pytest.raises(CheckpointError) as refused:
        config.shape({**BERT, **changes})
    assert refused.value.code == "CORE-M126"


def test_layer_types_must_name_every_layer():
    with pytest.raises(CheckpointError, match="must name 2 layers"):
        modern_config.shape(dict(MODERN, layer_types=["full_attention"]))


def test_labels_are_in_the_order_of_their_numbers():
    assert config_labels({"id2label": {"10": "k", **{str(i): chr(97 + i) for i in range(10)}}})[-2:] == ("j", "k")


def test_a_pooler_is_kept_only_where_the_head_reads_it():
    assert "pooler.*" in Encoder.weight_rules(BERT).skip
    assert "pooler.*" not in Encoder.weight_rules(named("BertForSequenceClassification")).skip
    assert "pooler.*" in Encoder.weight_rules(named("BertForTokenClassification")).skip
