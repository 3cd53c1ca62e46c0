"""Writes a Hugging Face tokenizer folder from a GGUF file's vocabulary.

    tokenizer.py MODEL.gguf FOLDER

Clients count and make up prompts with a tokenizer of this form. Only byte-level
BPE with SmolLM's rules (digits apart, GPT-2's pattern) is written.
"""

import json
import os
import struct
import sys

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
CONTROL = 3


def metadata(path):
    """Returns the key-value pairs at the beginning of a GGUF v2 or v3 file."""
    with open(path, "rb") as f:

        def scalar(kind):
            form = SCALARS[kind]
            return struct.unpack(form, f.read(struct.calcsize(form)))[0]

        def value(kind):
            if kind == STRING:
                return f.read(scalar(10)).decode("utf-8", "replace")
            if kind == ARRAY:
                inner, n = scalar(4), scalar(10)
                return [value(inner) for _ in range(n)]
            return scalar(kind)

        if f.read(4) != b"GGUF" or scalar(4) not in (2, 3):
            sys.exit(f"{path} is not a GGUF file of version 2 or 3")
        scalar(10)  # tensors
        return {value(STRING): value(scalar(4)) for _ in range(scalar(10))}


def main():
    source, folder = sys.argv[1:]
    meta = metadata(source)
    get = lambda name: meta.get("tokenizer.ggml." + name)
    if get("model") != "gpt2" or get("pre") not in ("smollm", "default", None):
        sys.exit(f"{source}: tokenizer {get('model')}/{get('pre')} is not SmolLM's")
    tokens, types = get("tokens"), get("token_type") or []
    special = [i for i, kind in enumerate(types) if kind == CONTROL]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
            for i in special
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "vocab": {t: i for i, t in enumerate(tokens)}, "merges": get("merges"),
        },
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 8192, "clean_up_tokenization_spaces": False,
        "eos_token": tokens[get("eos_token_id")], "bos_token": tokens[get("bos_token_id")], "chat_template": meta.get("tokenizer.chat_template"),
    }
    os.makedirs(folder, exist_ok=True)
    for name, data in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        with open(os.path.join(folder, name), "w") as f:
            json.dump(data, f)


main()
