"""Writes blocks.bin and values.bin beside itself: seeded random blocks of every
quantized type and what the gguf package makes of them.

Needs: pip install gguf==0.19.0.

For each type in TYPES, in order: BLOCKS blocks in blocks.bin, their float32
values (little endian) in values.bin. Scales are finite halves around 2^-6; all
other bytes are random, so every bit of a block is exercised.
"""
import pathlib
import numpy as np
import gguf
from gguf.quants import dequantize

BLOCKS = 6
# Type, offsets of its half-precision fields.
TYPES = [("Q8_0", [0]), ("Q4_0", [0]), ("Q4_1", [0, 2]), ("Q5_0", [0]), ("Q5_1", [0, 2]),
         ("Q4_K", [0, 2]), ("Q5_K", [0, 2]), ("Q6_K", [208])]

rng = np.random.default_rng(20260101)
here = pathlib.Path(__file__).parent
with open(here / "blocks.bin", "wb") as blocks, open(here / "values.bin", "wb") as values:
    for name, halves in TYPES:
        t = gguf.GGMLQuantizationType[name]
        elems, size = gguf.GGML_QUANT_SIZES[t]
        raw = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
        for at in halves:
            scale = (rng.standard_normal(BLOCKS) * 2.0 ** -6).astype(np.float16)
            raw[:, at:at + 2] = scale.view(np.uint8).reshape(BLOCKS, 2)
        blocks.write(raw.tobytes())
        values.write(dequantize(raw, t).astype("<f4").tobytes())
