from core.api import StructuredOutputSpec

WORDS = StructuredOutputSpec(
    name="words",
    impl="seam_grammar.backend:Words",
    api=1,
    summary="Toy: the output is one of a list of token sequences",
    grammars={"choice"},
)
