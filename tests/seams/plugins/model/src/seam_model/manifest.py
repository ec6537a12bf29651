from core.api import ModelSpec

STRANGE = ModelSpec(
    name="strange",
    impl="seam_model.model:Strange",
    api=2,
    summary="Attention and MLP side by side, ALiBi besides partial rotary embedding, biases everywhere",
    architectures=("StrangeForCausalLM",),
    shape="seam_model.config:shape",
)
