from core.api import WeightRules

LEFT, RIGHT = 8, 4


class Mixer:
    def __init__(self, config, build):
        size = config["hidden_size"]
        self.embed = build.embedding(config["vocab_size"], size, "embed")
        self.qkv = build.merged_linear(size, {"q": size, "k": size, "v": size}, "attention")
        self.attention = build.attention(0, num_heads=2, num_kv_heads=2, head_dim=size // 2, scale=0.25)
        self.mix = build.operation(config.get("mixing", "seam_mix"), size=size)
        self.pair = build.weights(
            "bilinear", "seam_bilinear", "pair", LEFT * RIGHT, {"": size}, dims={"left": LEFT, "right": RIGHT}
        )
        self.head = build.lm_head(config["vocab_size"], size, "head")

    @classmethod
    def weight_rules(cls, config):
        return WeightRules()

    def forward(self, step):
        x = self.embed(step.token_ids)
        q, k, v = (part.view(len(x), 2, -1) for part in self.qkv(x).split(self.qkv.splits, dim=-1))
        x = self.mix(x, self.attention(q, k, v, step), share=0.75)
        return x + self.pair(x[:, :LEFT], x[:, LEFT : LEFT + RIGHT])

    def logits(self, hidden):
        return self.head(hidden)
