from seam_operation.reference import Bilinear

CALLS = {"mix": 0, "bilinear": 0}


def mix(x, y, *, share=0.5):
    CALLS["mix"] += 1
    return x * share + y * (1 - share)


class QuickBilinear(Bilinear):
    def apply(self, left, right, params):
        CALLS["bilinear"] += 1
        a, b = self.place.dims["left"], self.place.dims["right"]
        halves = (params["weight"].view(-1, a, b) @ right.T).permute(2, 0, 1)  # (tokens, outputs, a)
        return (halves @ left[:, :, None]).squeeze(-1)
