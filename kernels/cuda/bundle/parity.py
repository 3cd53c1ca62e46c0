"""Writes random models of real shapes as transformers saves them, and what transformers
makes of them: greedy tokens in float32 with the distance of the best two logits, how
far bfloat16 is from float32, and the logits of a few positions.

parity.py TOKENIZER_FOLDER OUT, on a machine with torch, transformers and a GPU
"""
import json
import os
import sys
import time

import torch
import transformers

from shapes import write_tokenizer

PROMPTS, TOKENS = 16, 64
LENGTHS = (1, 17, 100, 400)  # four prompts of each
SHAPES = {
    "Qwen3-0.6B": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM, dict(
        hidden_size=1024, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
        intermediate_size=3072, vocab_size=151936, tie_word_embeddings=True, rms_norm_eps=1e-6,
        max_position_embeddings=40960, rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    "Llama-3.2-1B": (transformers.LlamaConfig, transformers.LlamaForCausalLM, dict(
        hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, head_dim=64,
        intermediate_size=8192, vocab_size=128256, tie_word_embeddings=True, rms_norm_eps=1e-5,
        max_position_embeddings=131072, rope_parameters=dict(
            rope_type="llama3", rope_theta=5e5, factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=8192))),
}


def fill(model, seed):
    """Weights that keep the size of what passes through; norms that are not all one."""
    g = torch.Generator(device="cuda").manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1:
                p.uniform_(0.6, 1.4, generator=g)
            elif "embed_tokens" in name:
                p.normal_(0, 2 / p.shape[1] ** 0.5, generator=g)
            else:
                p.normal_(0, 1 / p.shape[1] ** 0.5, generator=g)


@torch.no_grad()
def greedy(model, ids):
    """ids [batch, n] -> tokens [batch, TOKENS]."""
    cache, out, step = None, [], ids
    for _ in range(TOKENS):
        r = model(step, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache, step = r.past_key_values, r.logits[:, -1].float().argmax(-1, keepdim=True)
        out.append(step)
    return torch.cat(out, 1)


@torch.no_grad()
def forced(model, ids, tokens):
    """Logits [batch, TOKENS, vocabulary] in float32 of the tokens that follow ids."""
    return model(torch.cat([ids, tokens[:, :-1]], 1), logits_to_keep=TOKENS).logits.float()


def write(name, source, out, seed):
    config, kind, shape = SHAPES[name]
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        narrow = kind(config(**shape, eos_token_id=995, bos_token_id=None, pad_token_id=None)).eval()
    torch.set_default_dtype(torch.float32)
    narrow.tie_weights()
    fill(narrow, seed)
    narrow.save_pretrained(folder)
    write_tokenizer(source, folder, shape["vocab_size"])
    narrow = kind.from_pretrained(folder, dtype=torch.bfloat16).cuda().eval()
    wide = kind.from_pretrained(folder, dtype=torch.float32).cuda().eval()
    g = torch.Generator().manual_seed(seed)
    prompts, rows, noise, differ, squares, worst = [], [], 0.0, 0, 0.0, 0.0
    for n in LENGTHS:
        ids = torch.randint(0, 900, (PROMPTS // len(LENGTHS), n), generator=g).cuda()
        tokens = greedy(wide, ids)
        exact, rough = forced(wide, ids, tokens), forced(narrow, ids, tokens)
        free = greedy(narrow, ids)
        best = exact.topk(2, -1)
        margins = best.values[..., 0] - best.values[..., 1]
        noise = max(noise, (rough - exact).abs().max().item())
        off = (rough.gather(-1, best.indices)[..., 0] - rough.gather(-1, best.indices)[..., 1] - margins)
        squares, worst = squares + off.square().sum().item(), max(worst, off.abs().max().item())
        differ += (rough.argmax(-1) != tokens).sum().item()
        for i in range(ids.shape[0]):
            prompts.append(dict(
                id="%d tokens, %d" % (n, i), ids=ids[i].tolist(), tokens=tokens[i].tolist(), margins=margins[i].tolist(),
                bfloat16=free[i].tolist()))
            for k in (0, TOKENS - 1):
                rows.append(dict(prompt=len(prompts) - 1, position=k))
                exact[i, k].cpu().numpy().tofile(logits)
    logits.flush()
    with open(os.path.join(folder, "parity.json"), "w") as f:
        json.dump(dict(
            bfloat16_noise=noise, bfloat16_disagrees="%d of %d" % (differ, PROMPTS * TOKENS),
            bfloat16_margin_rms=(squares / (PROMPTS * TOKENS)) ** 0.5, bfloat16_margin_worst=worst,
            torch=torch.__version__, transformers=transformers.__version__, rows=rows, prompts=prompts), f)


if __name__ == "__main__":
    source, out = sys.argv[1:3]
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    for seed, name in enumerate(SHAPES):
        began = time.time()
        os.makedirs(os.path.join(out, name), exist_ok=True)
        with open(os.path.join(out, name, "logits.bin"), "wb") as logits:
            write(name, source, out, seed + 1)
        print("%s: %.1f s" % (name, time.time() - began), flush=True)
        torch.cuda.empty_cache()
