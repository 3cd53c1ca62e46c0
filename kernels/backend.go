// Package kernels says how a model's arithmetic is carried out: one op-level
// Backend that package model drives and that kernels/cpu and kernels/cuda
// implement. All arrays are row-major; shapes are written [rows, columns].
package kernels

// Buffer is device memory for activations or small parameters. Its element
// type is the backend's own (float32 on the CPU). A Buffer belongs to the
// backend that made it and is used on the step's goroutine only.
type Buffer interface {
	// Len returns the capacity in elements.
	Len() int
}

// Weight is a packed weight matrix [rows, cols]. Its format is known to the
// backend alone: layers never look inside.
type Weight interface {
	// Rows returns the output features.
	Rows() int
	// Cols returns the input features.
	Cols() int
	// Bytes returns the device memory held, in bytes.
	Bytes() int64
}

// HostTensor is a matrix as it lies in a model file, or a part of one. Data is
// only read, and only until Pack returns: the file may be unmapped after it.
type HostTensor struct {
	// Name is the tensor's name in its file, for error texts.
	Name string
	// DType is the element type of Data.
	DType DType
	// Rows and Cols give the shape; a row is contiguous.
	Rows, Cols int
	// Data holds Rows * DType.RowBytes(Cols) bytes.
	Data []byte
	// RowOrder, if not nil, names the source row of each packed row. The loader
	// uses it to undo GGUF's interleaving of q and k rows.
	RowOrder []int32
	// Fill, if not nil, stands for Data: the backend makes the values up. Only a
	// Filler is given such a tensor.
	Fill *Fill
}

// CacheSpec describes the paged KV memory of one cache group.
type CacheSpec struct {
	// Layers is the number of attention layers that keep keys and values here.
	Layers int
	// NumKVHeads and HeadDim give the shape of one token's keys in one layer.
	NumKVHeads, HeadDim int
	// BlockSize is the number of tokens in a block.
	BlockSize int
	// NumBlocks is the number of blocks in the pool.
	NumBlocks int
	// DType is the stored type: F32, F16 or BF16.
	DType DType
}

// Bytes returns the memory that the cache of this spec takes, in bytes.
func (s CacheSpec) Bytes() int64 {
	return int64(s.NumBlocks) * s.BlockBytes()
}

// BlockBytes returns the memory of one block over all layers, in bytes.
func (s CacheSpec) BlockBytes() int64 {
	return int64(s.Layers) * 2 * int64(s.BlockSize) * int64(s.NumKVHeads) *
		int64(s.HeadDim) * int64(s.DType.BlockBytes())
}

// Cache is the paged KV memory of one cache group.
type Cache interface {
	// Spec returns what the cache was made from.
	Spec() CacheSpec
	// Close gives the memory back.
	Close() error
}

// Prefaulter is a Cache whose memory the system would hand out page by page as it
// is first touched, within steps.
type Prefaulter interface {
	// Prefault makes the system hand all of it out now. An error says that it has not
	// got so much.
	Prefault() error
}

// Batch is one step's input in device-neutral form. It is built by the step's
// owner, only read by the backend, and reused after End.
type Batch struct {
	// Tokens holds the token ids of all sequences, one after another, [N].
	Tokens []int32
	// Positions holds each token's position in its sequence, [N].
	Positions []int32
	// Slots holds each token's place in the cache, block*BlockSize+offset, [N].
	Slots []int32
	// Seqs cuts the N tokens into sequences, in the same order.
	Seqs []BatchSeq
	// Logits names the tokens (indices into Tokens) whose logits are wanted, [M].
	Logits []int32
	// Draws says how a Stepper chooses each row's token, [M]; none means that all take
	// the largest logit.
	Draws []Draw
}

// BatchSeq is one sequence's slice of a Batch.
type BatchSeq struct {
	// First is the index of its first token in Batch.Tokens.
	First int
	// Len is the number of its tokens in this batch.
	Len int
	// Context is the number of its tokens that are in the cache already.
	Context int
	// Blocks is its block table: cache block i holds positions
	// [i*BlockSize, (i+1)*BlockSize). It covers Context+Len positions.
	Blocks []int32
}

// QKV describes the attention of one layer for the ops that split a fused
// projection. A token's row is [numHeads q | numKVHeads k | numKVHeads v] heads
// of headDim elements each.
type QKV struct {
	// Layer indexes the cache.
	Layer int
	// NumHeads, NumKVHeads and HeadDim give the shape; NumHeads is a multiple
	// of NumKVHeads.
	NumHeads, NumKVHeads, HeadDim int
	// QNorm and KNorm are RMSNorm weights [HeadDim] applied to each head before
	// the rotation, or nil.
	QNorm, KNorm Buffer
	// NormEps is the epsilon of QNorm and KNorm.
	NormEps float32
	// InvFreq holds the rotary frequencies [HeadDim/2] in radians per position.
	// Element i of a head is rotated with element i+HeadDim/2.
	InvFreq Buffer
	// Scale multiplies q·k before the softmax.
	Scale float32
	// Window is the number of positions a token sees, itself included; 0 means
	// all. Position p sees positions > p-Window.
	Window int
}

// Cols returns the width of a token's fused q, k, v row.
func (a QKV) Cols() int { return (a.NumHeads + 2*a.NumKVHeads) * a.HeadDim }

// Backend carries out a model's ops on one device. Memory and weights are made
// at load time from any one goroutine. Ops are called between Begin and End by
// the step's owner alone, in program order; each sees the results of those
// before it. A wrong shape is a bug and panics with a text that starts "BUG:".
//
// Rows are independent: a token's result does not depend on the other tokens of
// its batch, nor on how its prompt was cut into chunks. On the CPU this holds
// bit for bit.
type Backend interface {
	// Name returns the device and the kernel level, such as "cpu avx512vnni".
	Name() string

	// NewBuffer returns memory for n elements.
	NewBuffer(n int) (Buffer, error)
	// Upload returns a buffer that holds data.
	Upload(data []float32) (Buffer, error)
	// Pack returns a weight whose rows are those of all parts in order. Parts
	// have equal Cols and may differ in DType. Errors name the tensor.
	Pack(parts ...HostTensor) (Weight, error)
	// NewCache returns zeroed KV memory.
	NewCache(spec CacheSpec) (Cache, error)

	// Begin starts a step over b.
	Begin(b *Batch)
	// End waits until all ops of the step are done.
	End() error

	// Embed sets dst [N, cols] to the rows of w [vocabulary, cols] named by
	// Batch.Tokens.
	Embed(dst Buffer, w Weight)
	// RMSNorm sets dst[r] = x[r] / sqrt(mean(x[r]²)+eps) * w for the first rows
	// rows of x [rows, cols].
	RMSNorm(dst, x, w Buffer, rows, cols int, eps float32)
	// AddRMSNorm adds x to residual [rows, cols] in place, then sets dst to
	// RMSNorm(residual).
	AddRMSNorm(dst, residual, x, w Buffer, rows, cols int, eps float32)
	// MatMul sets dst [rows, w.Rows()] = x [rows, w.Cols()] · wᵀ + bias; bias
	// [w.Rows()] may be nil.
	MatMul(dst, x Buffer, w Weight, bias Buffer, rows int)
	// RopeAndCache normalises (if asked) and rotates q and k of qkv [N,
	// a.Cols()] in place and writes k and v to the cache at Batch.Slots.
	RopeAndCache(qkv Buffer, cache Cache, a QKV)
	// Attention sets dst [N, numHeads*headDim] to causal attention of the q part
	// of qkv over the cache. Keys and values are read from the cache only, those
	// of the running chunk too.
	Attention(dst, qkv Buffer, cache Cache, a QKV)
	// SiLUMul sets dst [rows, inner] = silu(gateUp[:, :inner]) * gateUp[:, inner:].
	SiLUMul(dst, gateUp Buffer, rows, inner int)
	// Gather sets dst [M, cols] to the rows of x [N, cols] named by Batch.Logits.
	Gather(dst, x Buffer, cols int)
	// Read copies the first len(dst) elements of src to the host as float32.
	Read(dst []float32, src Buffer)

	// Close ends workers and gives memory back. No op may be running.
	Close() error
}
