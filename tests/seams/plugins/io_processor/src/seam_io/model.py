import torch

from core.api import WeightRules


class Patches:
    """A row for each patch of a picture."""

    def __init__(self, config, build):
        self.size = config["patch"] ** 2
        self.project = build.linear(self.size, config["hidden_size"], "project", bias=True)

    @classmethod
    def weight_rules(cls, config):
        return WeightRules()

    def forward(self, step):
        if not step.arrays:  # the engine's own first step
            return self.project(torch.zeros(len(step.token_ids), self.size))
        return self.project(torch.cat([one["pixels"] for one in step.arrays]).float())
