def check(extra_args):
    if not all(isinstance(token, int) for token in extra_args.get("ban", [])):
        raise ValueError("ban must be a list of token ids")
