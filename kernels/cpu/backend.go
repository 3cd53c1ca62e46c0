package cpu

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"waybill/kernels"
)

// Backend runs the ops on the host's cores. It implements kernels.Backend.
//
// Compute thread 0 is the goroutine that calls the ops; the others are owned by
// the Backend, work between Begin and End and are parked otherwise.
type Backend struct {
	options Options
	kernels *kernelSet
	pool    *pool
	batch   *kernels.Batch

	// opened is all memory to give back, added to at load time.
	mu     sync.Mutex
	opened []*memory
	// weights is where packed weights lie.
	weights weightMemory

	// The tasks and the scratch memory below are reused by every op.
	embed               embedTask
	norm                normTask
	silu                siluTask
	rope                ropeTask
	attention           attentionTask
	matmul              matmulTask
	activate            activateTask
	gate                gateTask
	int8Acts, floatActs arena
	gateActs            arena
	// product is what waits, or is done, with what waiting says.
	product product
	waiting waits
	scratch []scratch
	// tables holds the angles of the step's positions.
	tables []angleTable
}

// maxThreads bounds Options.Threads; no host has more cores than this.
const maxThreads = 1024

// New returns a backend. The error tells of a level that this CPU does not have.
func New(o Options) (*Backend, error) {
	if o.Threads < 0 || o.Threads > maxThreads {
		return nil, fmt.Errorf("cpu: %d threads, want 0 to %d", o.Threads, maxThreads)
	}
	if o.Threads == 0 {
		o.Threads = runtime.NumCPU()
	}
	if o.Math != Int8 && o.Math != F32 {
		return nil, fmt.Errorf("cpu: unknown %v", o.Math)
	}
	set, err := levelNamed(o.Level)
	if err != nil {
		return nil, err
	}
	b := &Backend{options: o, kernels: set, pool: newPool(o.Threads), scratch: make([]scratch, o.Threads)}
	b.tables = make([]angleTable, 0, maxAngleTables)
	for _, t := range []*rowTask{&b.embed.rowTask, &b.norm.rowTask, &b.silu.rowTask, &b.rope.rowTask} {
		t.backend = b
	}
	b.attention.backend = b
	b.matmul.backend = b
	b.activate.matmulTask, b.gate.matmulTask = &b.matmul, &b.matmul
	return b, nil
}

// Name returns the kernel level and the arithmetic, such as "cpu avx512vnni int8".
func (b *Backend) Name() string { return "cpu " + b.kernels.name + " " + b.options.Math.String() }

// Threads returns the number of compute threads.
func (b *Backend) Threads() int { return b.options.Threads }

// keep remembers memory for Close.
func (b *Backend) keep(m *memory) {
	b.mu.Lock()
	b.opened = append(b.opened, m)
	b.mu.Unlock()
}

// NewBuffer returns zeroed memory for n elements.
func (b *Backend) NewBuffer(n int) (kernels.Buffer, error) {
	buf, err := newBuffer(n)
	if err != nil {
		return nil, err
	}
	b.keep(&buf.mem)
	return buf, nil
}

// Upload returns a buffer that holds data.
func (b *Backend) Upload(data []float32) (kernels.Buffer, error) {
	buf, err := b.NewBuffer(len(data))
	if err != nil {
		return nil, err
	}
	copy(buf.(*buffer).data, data)
	return buf, nil
}

// Pack returns a weight whose rows are those of all parts in order.
func (b *Backend) Pack(parts ...kernels.HostTensor) (kernels.Weight, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w, err := newWeight(parts, b.options.Math, &b.weights)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// NewCache returns zeroed KV memory.
func (b *Backend) NewCache(spec kernels.CacheSpec) (kernels.Cache, error) {
	return newCache(spec, b.options.Threads)
}

// Begin starts a step over batch and wakes the workers.
func (b *Backend) Begin(batch *kernels.Batch) {
	b.waiting = nothing // left by a step that panicked
	b.batch = batch
	b.tables = b.tables[:0]
	b.pool.begin()
}

// End lets the workers park. Every op is done when it returns.
func (b *Backend) End() error {
	b.flush()
	b.pool.end()
	b.batch = nil
	return nil
}

// step returns the batch of the running step.
func (b *Backend) step() *kernels.Batch {
	if b.batch == nil {
		panic(bug("an op that needs the batch, outside Begin and End"))
	}
	return b.batch
}

// Gather sets dst [M, cols] to the rows of x named by Batch.Logits.
func (b *Backend) Gather(dst, x kernels.Buffer, cols int) {
	b.flush()
	gather(b.step(), dst, x, cols)
}

// Read copies the first len(dst) elements of src to dst.
func (b *Backend) Read(dst []float32, src kernels.Buffer) {
	b.flush()
	copy(dst, floats(src, len(dst), "src"))
}

// Close ends the workers and gives memory back: weights and buffers made by b
// must not be used any more. Caches are closed by their owners.
func (b *Backend) Close() error {
	b.pool.close()
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, m := range b.opened {
		errs = append(errs, m.close())
	}
	b.opened = nil
	return errors.Join(append(errs, b.weights.close())...)
}
