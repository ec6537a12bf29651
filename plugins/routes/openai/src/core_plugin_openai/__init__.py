"""OpenAI's API, with the extras that users of other engines know."""
