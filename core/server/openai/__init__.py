"""Routes and wire format of the OpenAI API, with the extras that users of other engines know."""
