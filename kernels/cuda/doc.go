// Package cuda carries out the ops of package kernels on an NVIDIA GPU. It is
// empty but for Open unless the build tag cuda is set.
//
// # Numbers
//
// Weights, activations and the cache are bfloat16; sums, norms, angles and softmax
// are float32, and so are the residual stream, logits and small parameters. A value is
// rounded once, where it is stored. Three are not stored before they are used: what a
// sublayer adds to the residual stream, the rows of q, k and v, which stay float32
// until they are normalised and rotated, and, but for some row counts, gate and up.
//
// # A step
//
// Begin writes the step's tables (tables.go) to pinned memory, and the step's first
// kernel copies them to the device; all other kernels find tokens, positions, slots
// and block tables there. So a sequence of launches depends on the number of rows
// only, and a step that adds one token to each sequence is recorded once for each
// bucket of rows, with and without draws, and replayed as one graph (step.go). The
// last kernel writes tokens and the step's number to pinned memory, which the host
// polls.
//
// The beginning of a recording is a graph of its own. It can be queued behind the running
// step before that has ended (replay.go): its first kernel waits until the tables are
// complete, so that no launch lies between two steps. If another step is to come, it runs
// over rows that store nothing.
//
// # Tokens
//
// src/sample.cu finds the largest logit of every row. Rows with a kernels.Draw are
// drawn by src/draw.cu ahead of it, from the same random numbers as on the host, and
// leave their token, and log-probabilities if asked for, in pinned memory (draw.go).
// Parameters and penalised tokens travel with the step's tables, so the device keeps
// nothing of a sequence but its cache.
//
// Kernels may start before the one ahead of them has ended (dependent launch): products
// fetch weights ahead, attention its tables and older keys and values; then they wait. See
// src/common.cuh for the rule. None starts before the one that copies the tables has ended.
//
// # Products
//
// Up to 8 rows: src/stream.cu, which reads weights at the speed of memory. From 9 to 64
// rows of all but heads, on compute capability 9.0: src/wide.cu, which does so with larger
// instructions. What it does not take: src/stream.cu up to 16 rows where the weight is
// small. More: cuBLASLt, opened when the program starts, which adds to the residual stream
// by itself. Gate and up of many rows, on compute capability 9.0: src/gated.cu, which does
// the activation too. What none takes: src/matmul.cu.
//
// # Ops that wait
//
// MatMul and RopeAndCache may wait for the op that follows and become one kernel with
// it: product and gated activation; product, residual sum and norm; rotation and
// attention. What lies between the two is then never written, which no decoder
// notices: the results of MatMul that go into SiLUMul or AddRMSNorm, and q and k
// after the rotation, are undefined afterwards.
//
// # Attention
//
// Rows of one new token: src/decode.cu. Several tokens: the kernels of FlashInfer,
// in a library that the executable carries (attn/). What neither takes (odd widths,
// windows): src/attention.cu.
//
// # Failure
//
// Memory that cannot be had is kernels.ErrOutOfMemory: of a step, what was queued is
// waited for, and the next one is as if it had not been. Every other error of a step
// is final and names the kernel, if the driver writes core dumps (exception.go).
//
// # Threads
//
// The CUDA context belongs to a thread. Every entry point makes it current on its
// own; between Begin and End, and Start and Finish, the goroutine stays locked to
// its thread.
package cuda
