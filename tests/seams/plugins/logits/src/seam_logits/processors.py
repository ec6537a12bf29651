import torch

LOG = []


class Ban:
    is_argmax_invariant = False

    def __init__(self, ctx):
        self.ctx = ctx
        self.rows = {}

    def admit(self, row, params, prompt):
        arguments = params.extra_args or {}
        LOG.append(("admit", row, len(prompt)))
        if arguments.get("ban_breaks") == "admit":
            raise RuntimeError("told to break")
        banned = [*self.ctx.options["always"], *arguments.get("ban", [])]
        if not banned and "ban_breaks" not in arguments:
            return False
        self.rows[row] = (torch.tensor(banned), arguments.get("ban_after", 0), arguments.get("ban_breaks"))
        return True

    def release(self, row):
        LOG.append(("release", row))
        del self.rows[row]

    def apply(self, logits, rows, output_counts):
        for line, row, count in zip(logits, rows.tolist(), output_counts.tolist(), strict=True):
            banned, after, breaks = self.rows[row]
            if breaks == "apply":
                raise RuntimeError("told to break")
            if count >= after:
                line[banned] = float("-inf")


class Lift:
    """Makes every draw greedy without changing the argmax."""

    is_argmax_invariant = True

    def __init__(self, ctx):
        self.applied = []
        LOG.append(self)

    def admit(self, row, params, prompt):
        return bool((params.extra_args or {}).get("lift"))

    def release(self, row):
        LOG.append(("release lift", row))

    def apply(self, logits, rows, output_counts):
        self.applied.append(rows.tolist())
        logits.mul_(1e6)
