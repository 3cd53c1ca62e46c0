// Package cpu carries out the ops of package kernels on the host's cores.
//
// Two implementations live here. Oracle (oracle*.go) is what an op means: plain
// Go, one row after another, sums in float64. Backend is what runs; package
// kerneltest holds the two against each other.
//
// # Levels
//
// A level is a kernelSet: amx, avx512vnni, avx2 or generic (plain Go, every CPU).
// New takes the best that the CPU can run. The levels of assembly keep the same
// lanes and make the same operations, so they agree bit for bit with each other
// but for rows of a length that 16 does not divide. The tile unit of amx (tiles.go)
// multiplies the same bytes for many rows; fewer take the vector kernels.
//
// # Rows are independent
//
// A token's result is the same bits alone, in a batch of any size and in a chunk
// of any length, on any number of threads:
//
//   - Matrix products (matmul.go): an output is one lane's sum in the order of K.
//     Neither the height of a panel nor the thread decides about it (format.go,
//     panel.go).
//   - Attention (attention.go): a score is one lane's sum in the order of headDim;
//     spans of 256 positions, counted from the first of the sequence, are summed up
//     in the order of positions and folded together in the order of spans. Which
//     threads do them does not matter.
//   - All other ops treat a row by itself (rows.go, rope.go).
//
// # Int8
//
// Where a weight is quantized, activations are rounded to int8 with one scale for
// each 32 along K; products are exact integers within a block and are added up in
// float32 over the blocks. Blocks of small rows keep their precision: scales are
// per row and block, not per tensor. docs/CPU.md derives the bound of the error.
//
// # Ops that wait
//
// A norm, and a product with gate and up, may wait for the op that follows and be
// done with it (fusion.go): norm and rounding to int8; gate and up, SiLU·mul and
// rounding. Gates and ups are then never written, nor what SiLU·mul makes of them,
// which no decoder notices: the results of MatMul that go into SiLUMul, and of
// SiLUMul that go into MatMul, are undefined afterwards.
//
// # Threads
//
// pool.go cuts an op into chunks of some 5 µs that threads claim one by one. The
// step's owner is a compute thread like the others and can finish alone. Workers
// spin within a step, and stay on a futex between steps (gate_linux.go).
//
// # Memory
//
// Weights, caches, buffers and scratch lie outside the Go heap. Weights are packed
// once, to the size they have in the file (weight.go), in large pages
// (weightmemory.go).
package cpu
