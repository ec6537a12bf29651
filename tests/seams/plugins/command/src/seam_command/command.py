from core.api import PluginError


class Greet:
    def __init__(self, options):
        self.word = options["word"]

    def register(self, parser):
        parser.add_argument("name")
        parser.add_argument("--times", type=int, default=1)

    def run(self, args):
        if args.name == "nobody":
            raise PluginError("SEAM-1", "there is nobody here.")
        if args.name == "error":
            raise KeyError("oops")
        for _ in range(args.times):
            print(f"{self.word} {args.name}")
        return 0 if args.times else 3


class BenchGreet(Greet):
    def __init__(self):
        super().__init__({"word": "measured"})
