import json

from core.api import RequestError, RouteResponse


class Echo:
    def __init__(self, options):
        self.client = None

    def declare(self, registry):
        registry.add("GET", "/x/echo/{word}", self.say, summary="Echo a word")
        registry.add("POST", "/x/echo", self.generate)
        registry.add("GET", "/x/echo/stream/now", self.stream)

    def bind(self, client):
        self.client = client

    async def say(self, request):
        word = request.path_params["word"]
        if word == "shout":
            raise RequestError("not so loud", param="word", status=418)
        if word == "break":
            raise RuntimeError("secret detail")
        if word == "nothing":
            return None
        answer = {"word": word, "times": request.query.get("times"), "model": self.client.model_name}
        return RouteResponse(json.dumps(answer).encode(), headers={"x-echo": "yes"})

    async def generate(self, request):
        body = await request.json()
        async for output in self.client.generate(body["prompt"]):
            last = output
        return RouteResponse(json.dumps({"text": last.text, "reason": last.finish_reason}).encode())

    async def stream(self, request):
        async def pieces():
            for word in ("one", "two"):
                yield word.encode()

        return RouteResponse(pieces(), media_type="text/plain")


class Greedy:
    def __init__(self, options): ...

    def declare(self, registry):
        registry.add("GET", "/v1/models", self.answer)

    def bind(self, client): ...

    async def answer(self, request):
        return RouteResponse()
