"""Writes a tokenizer.json with Qwen3's real vocabulary, from the tokens by rank that the tokenizer's tests use.

vocabulary.py SHELL RANKS SPECIAL OUT

SHELL is a folder with a tokenizer of the same kind; all but vocabulary and added tokens is taken from it. RANKS holds one
length byte and the bytes of each token, gzipped. SPECIAL is the tests' golden file, whose head lists the added tokens.
"""
import gzip
import json
import os
import sys


def byte_chars():
    """The printable character that stands for each byte (GPT-2's bytes_to_unicode)."""
    chars, extra = {}, 256
    for b in range(256):
        if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174:
            chars[b] = chr(b)
        else:
            chars[b] = chr(extra)
            extra += 1
    return chars


def last_two(token, ranks, limit):
    """Merges a token's bytes by ranks below limit; its own merge joins the two parts that are left."""
    parts = [token[i:i + 1] for i in range(len(token))]
    while len(parts) > 2:
        best, at = min((ranks.get(a + b, limit), i) for i, (a, b) in enumerate(zip(parts, parts[1:])))
        if best >= limit:
            return None
        parts[at:at + 2] = [parts[at] + parts[at + 1]]
    return parts if len(parts) == 2 else None


if __name__ == "__main__":
    shell, rank_file, special_file, out = sys.argv[1:5]
    with gzip.open(rank_file) as f:
        data = f.read()
    tokens, at = [], 0
    while at < len(data):
        n = 1 + data[at]
        tokens.append(data[at + 1:at + n])
        at += n
    ranks = {token: i for i, token in enumerate(tokens)}
    chars = byte_chars()
    spell = lambda token: "".join(chars[b] for b in token)
    merges = [[spell(a), spell(b)] for a, b in filter(None, (last_two(t, ranks, i) for i, t in enumerate(tokens)))]
    with open(os.path.join(shell, "tokenizer.json")) as f:
        tokenizer = json.load(f)
    with open(special_file) as f:
        special = json.load(f)["tokenizer"]["special"]
    tokenizer["model"].update(vocab={spell(t): i for i, t in enumerate(tokens)}, merges=merges)
    tokenizer["added_tokens"] = [
        dict(id=i, content=text, single_word=False, lstrip=False, rstrip=False, normalized=False, special="<|" in text)
        for text, i in special.items()]
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "tokenizer.json"), "w") as f:
        json.dump(tokenizer, f)
    with open(os.path.join(shell, "tokenizer_config.json")) as f:
        config = json.load(f)
    config.pop("added_tokens_decoder", None)
    with open(os.path.join(out, "tokenizer_config.json"), "w") as f:
        json.dump(config, f)
