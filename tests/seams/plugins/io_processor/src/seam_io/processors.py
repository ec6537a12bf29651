import asyncio

import numpy as np

from core.api import IOPrompts, RequestError

CALLS = []


class Nearest:
    """Tells which of several choices is nearest to a text."""

    def __init__(self, ctx):
        self.ctx = ctx

    def parse_request(self, data):
        if not isinstance(data, dict) or not data.get("choices"):
            raise ValueError("wants a text and choices")
        return data

    def pre_process(self, request):
        CALLS.append(request)
        ids = self.ctx.tokenizer.encode(request.data["text"])
        bare = {"prompt": request.data["choices"][-1], "add_special_tokens": False}
        prompts = [ids, *request.data["choices"][:-1], bare]
        return IOPrompts(prompts, task="embed", params={"normalize": True})

    def post_process(self, request, outputs):
        CALLS.append(outputs)
        text, *choices = [one.data for one in outputs]
        return {"scores": np.array(choices) @ text, "id": request.request_id}


class Picture:
    """Cuts a picture into patches and gives the model's row for each of them."""

    def __init__(self, ctx):
        self.patch = ctx.model_config["patch"]

    async def parse_request(self, data):
        await asyncio.sleep(0)
        picture = np.asarray(data, dtype=np.float32)
        if picture.ndim != 2 or picture.shape[0] % self.patch or picture.shape[1] % self.patch:
            raise ValueError(f"must be a picture of whole patches, got shape {picture.shape}")
        return picture

    async def pre_process(self, request):
        await asyncio.sleep(0)
        high, wide = (size // self.patch for size in request.data.shape)
        cut = request.data.reshape(high, self.patch, wide, self.patch).swapaxes(1, 2).reshape(high * wide, -1)
        prompt = {"prompt_token_ids": [0] * len(cut), "arrays": {"pixels": cut.astype(np.float16)}}
        return IOPrompts([prompt])

    async def post_process(self, request, outputs):
        await asyncio.sleep(0)
        assert outputs[0].prompt["arrays"]["pixels"].dtype == np.float16
        return outputs[0].data


class Faulty:
    """Fails in the way that the data names."""

    def __init__(self, ctx):
        self.ctx = ctx

    def parse_request(self, data):
        if data == "refuse":
            raise RequestError("not that", param="data", code="not_that", status=418)
        if data == "break":
            raise KeyError("secret")
        return data

    def pre_process(self, request):
        prompts = {"nothing": [], "outside": [[10**6]], "text": "one text", "empty": [[]]}.get(request.data, ["a"])
        wrong = {"unknown": 1} if request.data == "parameter" else {"dimensions": 0} if request.data == "zero" else {}
        if request.data == "kind":
            return prompts
        return IOPrompts(prompts, task="classify" if request.data == "task" else None, params=wrong)

    def post_process(self, request, outputs):
        if request.data == "late":
            raise ValueError("secret")
        return {1, 2} if request.data == "set" else None
