from core.api import CommandSpec

GREET = CommandSpec(
    name="greet",
    impl="seam_command.command:Greet",
    api=1,
    summary="Say hello",
    options="seam_command.options:GreetOptions",
)
BENCH_GREET = GREET.replace(name="bench-greet", impl="seam_command.command:BenchGreet", options=None)
