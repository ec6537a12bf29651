"""GPT-2 and its kin: BigCode, GPT-Neo, GPT-NeoX, GPT-J, CodeGen, Jais."""
