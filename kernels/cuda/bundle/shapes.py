"""Writes model folders of the shapes whose speed counts: config.json, and a tokenizer
in which ids beyond the vocabulary have texts too (made-up weights choose any of them).

shapes.py TOKENIZER_FOLDER OUT
"""
import json
import os
import sys

SHAPES = {
    "Qwen3-0.6B": dict(hidden_size=1024, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
                       intermediate_size=3072, tie_word_embeddings=True),
    "Qwen3-8B": dict(hidden_size=4096, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8, head_dim=128,
                     intermediate_size=12288, tie_word_embeddings=False),
}
VOCABULARY = 151936


def write_tokenizer(source, folder, size):
    """Copies a tokenizer and gives every id below size that has no text one."""
    with open(os.path.join(source, "tokenizer.json")) as f:
        tokenizer = json.load(f)
    with open(os.path.join(source, "tokenizer_config.json")) as f:
        config = json.load(f)
    vocabulary = tokenizer["model"]["vocab"]
    used = set(vocabulary.values()) | {t["id"] for t in tokenizer["added_tokens"]}
    for i in range(size):
        if i not in used:
            vocabulary["\u0120w%d" % i] = i
    for file, content in (("tokenizer.json", tokenizer), ("tokenizer_config.json", config)):
        with open(os.path.join(folder, file), "w") as f:
            json.dump(content, f)


if __name__ == "__main__":
    source, out = sys.argv[1:3]
    for name, shape in SHAPES.items():
        folder = os.path.join(out, name)
        os.makedirs(folder, exist_ok=True)
        write_tokenizer(source, folder, VOCABULARY)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3", vocab_size=VOCABULARY, rms_norm_eps=1e-6,
                           rope_theta=1e6, max_position_embeddings=40960, hidden_act="silu", attention_bias=False,
                           torch_dtype="bfloat16", eos_token_id=151645, **shape), f)
