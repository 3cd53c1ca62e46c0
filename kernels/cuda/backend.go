//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"waybill/kernels"
	"waybill/kernels/cuda/driver"
)

// Sizes of the backend's own memory.
const (
	// workspaceBytes is for cuBLASLt, which asks for 32 MiB on Hopper.
	workspaceBytes = 32 << 20
	// attnFloatBytes and attnIntBytes are for the attention library: its own
	// defaults.
	attnFloatBytes = 128 << 20
	attnIntBytes   = 8 << 20
	// streamMaxRows is where cuBLASLt becomes faster, on an H200, for weights of more
	// than streamSmallBytes; of smaller ones the kernels that follow are spared. Weights
	// up to that size have kernels of their own in src/stream.cu: deeper rings made steps of
	// Qwen3-0.6B's shape, where nearly all are small, 0.6 to 1.7 % faster, those of 8B,
	// where none is, 0.1 to 3.5 % slower.
	streamMaxRows    = 8
	streamSmallBytes = 16 << 20
	// wideAbove is the largest number of rows for which src/stream.cu stays where there is src/wide.cu, wideBytes the
	// size of the largest weight of a layer with which the latter was measured, rounded up: heads are left out.
	wideAbove = 8
	wideBytes = 256 << 20
	// streamTurn: 0 loses a tenth of the bandwidth, 8 to 104 are alike (H200).
	streamTurn = 24
	// stagingBytes is one of two pinned buffers through which weights pass.
	stagingBytes = 32 << 20
)

// Backend runs the ops on one GPU. It implements kernels.Stepper.
type Backend struct {
	name    string
	options Options
	device  cu.Device
	ctx     cu.CUContext
	stream  cu.Stream
	sms     int // multiprocessors
	major   int // of the compute capability
	// streamMax is the largest number of rows that src/stream.cu is used for,
	// streamSmall that for small weights.
	streamMax, streamSmall int
	// smallBytes is streamSmallBytes.
	smallBytes int64
	// src/wide.cu is used for more than wideAbove rows, at most wideMax, and weights of at most wideBytes.
	wideAbove, wideMax int
	wideBytes          int64
	// streamTurn is by how many steps of 32 the blocks of src/stream.cu are apart in
	// their way through k.
	streamTurn int
	// gatedShare is Options.GatedShare.
	gatedShare float64
	fn         functions
	lt         *driver.Lt
	plans      map[driver.LtShape]*driver.LtPlan
	// ios is the memory of the last product of each shape, whatever its rows.
	ios map[driver.LtShape]driver.LtIO

	// mu guards what is added at load time from any goroutine.
	mu      sync.Mutex
	opened  []cu.DevicePtr
	pinned  []unsafe.Pointer
	staging [2]unsafe.Pointer

	workspace cu.DevicePtr
	attn      attnMemory
	tables    tables
	steps     steps
	draws     draws

	batch *kernels.Batch
	args  driver.Args
	err   error // the first of the running step

	exceptions *exceptions // nil where the driver writes no dumps
	unset      func()
}

// Open loads the driver and returns a backend, or an error that says what is
// missing.
func Open(o Options) (_ kernels.Backend, err error) {
	if err := driver.Load(); err != nil {
		if errors.Is(err, driver.ErrNoDriver) {
			return nil, fmt.Errorf("cuda: %w: install NVIDIA's driver (580 or newer), or use --device cpu", err)
		}
		return nil, fmt.Errorf("cuda: %w: %w: is a GPU visible to this process? Else use --device cpu", ErrNoGPU, err)
	}
	n, err := cu.NumDevices()
	if err != nil {
		return nil, fmt.Errorf("cuda: count devices: %w", err)
	}
	if o.Device < 0 || o.Device >= n {
		return nil, fmt.Errorf("cuda: %w: device %d of %d", ErrNoGPU, o.Device, n)
	}
	// Where the driver is told to wait for every launch, it would wait for one that waits for the host.
	o.Sync = o.Sync || os.Getenv("CUDA_LAUNCH_BLOCKING") == "1"
	b := &Backend{options: o, plans: map[driver.LtShape]*driver.LtPlan{}, ios: map[driver.LtShape]driver.LtIO{}}
	b.steps.recorded, b.steps.warm = map[recording]*recorded{}, map[recording]bool{}
	if b.device, err = cu.GetDevice(o.Device); err != nil {
		return nil, fmt.Errorf("cuda: device %d: %w", o.Device, err)
	}
	if err := b.describe(); err != nil {
		return nil, err
	}
	if o.StreamRows > 0 {
		b.streamMax = min(o.StreamRows, maxStreamRows)
		b.streamSmall, b.wideMax = b.streamMax, min(o.StreamRows, maxWideRows)
	}
	b.exceptions, _ = watchExceptions() // without it errors are the driver's, and name no kernel
	if b.steps.firstTakes = firstTakes; o.FirstTakes > 0 {
		b.steps.firstTakes = o.FirstTakes
	}
	if b.gatedShare = gatedShare; o.GatedShare > 0 {
		b.gatedShare = o.GatedShare
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// The primary context is the one that cuBLASLt and the runtime within the
	// attention library use, too.
	if b.ctx, err = b.device.RetainPrimaryCtx(); err != nil {
		return nil, fmt.Errorf("cuda: context: %w", err)
	}
	if err := b.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("cuda: %w", err), b.Close())
	}
	return b, nil
}

// describe reads what the device is and refuses one that has no kernels here.
func (b *Backend) describe() error {
	model, err := b.device.Name()
	if err != nil {
		return fmt.Errorf("cuda: device name: %w", err)
	}
	major, minor, err := b.device.ComputeCapability()
	if err != nil {
		return fmt.Errorf("cuda: compute capability: %w", err)
	}
	if b.sms, err = b.device.Attribute(cu.MultiprocessorCount); err != nil {
		return fmt.Errorf("cuda: multiprocessors: %w", err)
	}
	b.major, b.streamMax, b.streamSmall, b.streamTurn = major, streamMaxRows, maxStreamRows, streamTurn
	b.smallBytes = streamSmallBytes
	b.wideAbove, b.wideMax, b.wideBytes = wideAbove, maxWideRows, wideBytes
	b.name = fmt.Sprintf("cuda %s sm_%d%d", model, major, minor)
	if major != 8 && (major != 9 || minor != 0) && major != 10 {
		return fmt.Errorf("cuda: %w: %s has compute capability %d.%d, this binary has code for 8.x, 9.0 and 10.x", ErrNoGPU, model, major, minor)
	}
	return nil
}

// open makes what every step needs.
func (b *Backend) open() (err error) {
	if err := driver.Enter(b.ctx); err != nil {
		return err
	}
	if b.stream, err = cu.MakeStream(cu.NonBlocking); err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	if err := b.fn.load(); err != nil {
		return err
	}
	if err := b.openGated(); err != nil {
		return err
	}
	if err := b.openWide(); err != nil {
		return err
	}
	if b.lt, err = driver.OpenLt(); err != nil {
		return fmt.Errorf("%w: install the CUDA 13 runtime libraries, or name their folder in LD_LIBRARY_PATH", err)
	}
	if b.workspace, err = b.alloc(workspaceBytes); err != nil {
		return err
	}
	for i := range b.staging {
		if b.staging[i], err = b.allocPinned(stagingBytes); err != nil {
			return err
		}
	}
	if err := b.openAttn(); err != nil {
		return err
	}
	if err := b.openDraws(); err != nil {
		return err
	}
	return b.openSteps()
}

// Name returns the device and its architecture, such as "cuda NVIDIA H200 sm_90".
func (b *Backend) Name() string { return b.name }

// Fills reports that Pack makes weights up on the device.
func (b *Backend) Fills() bool { return true }

// enter makes the context current on the goroutine's thread until the returned
// function is called. What is queued ahead is given up: calls that wait for the device
// would wait for ever.
func (b *Backend) enter() (leave func(), err error) {
	if leave, err = b.attach(); err == nil {
		b.GiveUp()
	}
	return leave, err
}

// attach is enter for calls that do not wait for all that is queued.
func (b *Backend) attach() (leave func(), err error) {
	runtime.LockOSThread()
	if err := driver.Enter(b.ctx); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("cuda: %w", err)
	}
	return runtime.UnlockOSThread, nil
}

// Memory returns the free and the whole device memory in bytes.
func (b *Backend) Memory() (free, total int64, err error) {
	leave, err := b.attach()
	if err != nil {
		return 0, 0, err
	}
	defer leave()
	return cu.MemInfo()
}

// Begin starts a step over batch: its tables are queued before any op.
func (b *Backend) Begin(batch *kernels.Batch) {
	leave, err := b.enter()
	if err != nil {
		b.fail("begin", err)
		leave = func() {}
	}
	b.unset = leave
	b.batch, b.attn.planned = batch, false
	b.draws.rows = b.draws.rows[:0] // the host samples
	// The device may yet read the other half, as that of a step which was given up.
	b.tables.turn(b.steps.number)
	b.tables.layout(b.shapeOf(batch))
	b.tables.fill(batch, b.draws.rows)
	b.tables.open()
	b.queueTables()
}

// End waits until all ops of the step are done and returns the first error.
func (b *Backend) End() error {
	b.flush()
	if b.err == nil {
		if err := b.stream.Synchronize(); err != nil {
			b.fail("synchronize", err)
		}
	}
	err := b.err
	b.batch, b.err = nil, nil
	b.unset()
	return err
}

// fail keeps the first error of a step.
func (b *Backend) fail(what string, err error) {
	if b.err == nil && err != nil {
		b.err = fmt.Errorf("cuda: %s: %w", what, err)
	}
}

// launch queues a kernel that may start before the one ahead of it has ended.
func (b *Backend) launch(what string, fn cu.Function, grid [3]int, block, shared int, a *driver.Args) {
	if b.err != nil {
		return
	}
	s := driver.Shape{Grid: grid, Block: block, Shared: shared, Dependent: b.major >= 9}
	if b.cut() {
		s.Dependent = false
	}
	b.fail(what, s.Launch(fn, b.stream, a))
	b.settled(what)
}

// settled waits for what was queued last, if Options.Sync asks for it.
func (b *Backend) settled(what string) {
	if b.options.Sync && b.err == nil {
		err := b.stream.Synchronize()
		if err == nil {
			err = b.exception()
		}
		b.fail(what, err)
	}
}

// step returns the batch of the running step.
func (b *Backend) step() *kernels.Batch {
	if b.batch == nil {
		panic(bug("an op that needs the batch, outside Begin and End"))
	}
	return b.batch
}

// bug is the text of a broken contract.
func bug(format string, a ...any) string { return "BUG: cuda: " + fmt.Sprintf(format, a...) }

// Close gives all memory back.
func (b *Backend) Close() error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	var errs []error
	if b.stream != (cu.Stream{}) {
		errs = append(errs, b.stream.Synchronize()) // what was given up may run yet
	}
	errs = append(errs, b.closeSteps())
	for _, p := range b.plans {
		p.Close()
	}
	for _, p := range b.opened {
		errs = append(errs, cu.MemFree(p))
	}
	for _, p := range b.pinned {
		errs = append(errs, cu.MemFreeHost(p))
	}
	b.opened, b.pinned, b.plans = nil, nil, nil
	if b.stream != (cu.Stream{}) {
		errs = append(errs, b.stream.Destroy())
	}
	errs = append(errs, b.device.ReleasePrimaryCtx())
	driver.Forget()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cuda: close: %w", err)
	}
	return nil
}
