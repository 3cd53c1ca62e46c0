//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"gorgonia.org/cu"

	"waybill/kernels"
)

// embedding opens a device and makes a weight of ones [64, 64], and buffers for 512 rows of it and of logits.
func embedding(t testing.TB, o Options) (b *Backend, w *weight, x, logits kernels.Buffer) {
	t.Helper()
	opened, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.Close() })
	b = opened.(*Backend)
	packed, err := b.Pack(kernels.HostTensor{Name: "w", DType: kernels.BF16, Rows: 64, Cols: 64, Fill: &kernels.Fill{Center: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if x, err = b.NewBuffer(512 * 64); err != nil {
		t.Fatal(err)
	}
	if logits, err = b.NewFloats(512 * 64); err != nil {
		t.Fatal(err)
	}
	return b, packed.(*weight), x, logits
}

// decodeStep runs a step of n rows of one token over the weight.
func decodeStep(b *Backend, w *weight, x, logits kernels.Buffer, n int) error {
	batch := &kernels.Batch{}
	for i := range n {
		batch.Tokens, batch.Positions = append(batch.Tokens, int32(i%64)), append(batch.Positions, 0)
		batch.Slots, batch.Logits = append(batch.Slots, int32(i)), append(batch.Logits, int32(i))
		batch.Seqs = append(batch.Seqs, kernels.BatchSeq{First: i, Len: 1, Blocks: []int32{0}})
	}
	err := b.Start(batch, func(batch *kernels.Batch) kernels.Buffer {
		b.Embed(x, w)
		b.MatMul(logits, x, w, nil, len(batch.Tokens))
		return logits
	})
	if err != nil {
		return err
	}
	out := make([]kernels.Picked, n)
	if _, err := b.Finish(out, nil); err != nil {
		return err
	}
	for i, p := range out {
		if p.Token != 0 || !p.Finite { // all logits are equal
			return fmt.Errorf("row %d of %d: %+v", i, n, p)
		}
	}
	return nil
}

// TestNoMemoryIsAnErrorAndNothingElse fills the device, asks for more, and goes on when
// there is room again; meanwhile steps that were never recorded succeed or say what is
// missing.
func TestNoMemoryIsAnErrorAndNothingElse(t *testing.T) {
	b, w, x, logits := embedding(t, Options{})
	leave, err := b.enter()
	if err != nil {
		t.Fatal(err)
	}
	var filled []cu.DevicePtr
	for size := int64(8 << 30); size >= 64<<10; {
		p, err := b.take(size)
		if err == nil {
			filled = append(filled, p)
		} else if errors.Is(err, kernels.ErrOutOfMemory) {
			size /= 2
		} else {
			t.Fatal(err)
		}
	}
	leave()
	spec := kernels.CacheSpec{Layers: 4, NumKVHeads: 8, HeadDim: 128, BlockSize: 16, NumBlocks: 1024, DType: kernels.BF16}
	if _, err := b.NewCache(spec); !errors.Is(err, kernels.ErrOutOfMemory) {
		t.Errorf("a cache on a full device: %v", err)
	}
	if _, err := b.NewFloats(16 << 20); !errors.Is(err, kernels.ErrOutOfMemory) {
		t.Errorf("a buffer on a full device: %v", err)
	}
	if _, err := b.Pack(kernels.HostTensor{Name: "big", DType: kernels.BF16, Rows: 4096, Cols: 4096, Fill: &kernels.Fill{}}); !errors.Is(err, kernels.ErrOutOfMemory) ||
		!strings.Contains(err.Error(), "big") {
		t.Errorf("a weight on a full device: %v", err)
	}
	lost := 0
	for _, n := range []int{1, 3, 40, 250, 300} {
		for range 3 {
			if err := decodeStep(b, w, x, logits, n); errors.Is(err, kernels.ErrOutOfMemory) {
				lost++
			} else if err != nil {
				t.Errorf("%d rows on a full device: %v", n, err)
			}
		}
	}
	t.Logf("%d steps of 15 found no memory", lost)
	leave, err = b.enter()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range filled {
		if err := cu.MemFree(p); err != nil {
			t.Fatal(err)
		}
	}
	leave()
	for _, n := range []int{1, 3, 40, 250, 300} {
		if err := decodeStep(b, w, x, logits, n); err != nil {
			t.Errorf("%d rows with room again: %v", n, err)
		}
	}
	cache, err := b.NewCache(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := cache.Close(); err != nil {
		t.Error(err)
	}
}

// TestEveryAllocationMayFail lets the n-th allocation of opening and preparing fail.
func TestEveryAllocationMayFail(t *testing.T) {
	for n := 1; ; n++ {
		count := 0
		o := Options{Fault: func(what string) error {
			if what == "allocate" {
				if count++; count == n {
					return kernels.ErrOutOfMemory
				}
			}
			return nil
		}}
		err := prepare(o)
		if count < n {
			if err != nil {
				t.Errorf("without a fault: %v", err)
			}
			t.Logf("%d allocations", count)
			return
		}
		if !errors.Is(err, kernels.ErrOutOfMemory) {
			t.Errorf("allocation %d fails: %v", n, err)
		}
	}
}

// prepare opens a backend, makes some memory and closes it.
func prepare(o Options) (err error) {
	b, err := Open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if _, err := b.NewBuffer(100); err != nil {
		return err
	}
	if _, err := b.Upload(make([]float32, 100)); err != nil {
		return err
	}
	if _, err := b.Pack(kernels.HostTensor{Name: "w", DType: kernels.BF16, Rows: 64, Cols: 64, Fill: &kernels.Fill{}}); err != nil {
		return err
	}
	c, err := b.NewCache(kernels.CacheSpec{Layers: 1, NumKVHeads: 8, HeadDim: 128, BlockSize: 16, NumBlocks: 4, DType: kernels.BF16})
	if err != nil {
		return err
	}
	return c.Close()
}

// TestAStepMayFail lets steps of every kind find no memory; the next ones are right.
func TestAStepMayFail(t *testing.T) {
	steps := 0
	b, w, x, logits := embedding(t, Options{Fault: func(what string) error {
		if what == "step" {
			if steps++; steps%3 == 0 {
				return kernels.ErrOutOfMemory
			}
		}
		return nil
	}})
	for i := 1; i <= 36; i++ {
		err := decodeStep(b, w, x, logits, []int{1, 7, 300, 20}[i%4])
		if i%3 == 0 && !errors.Is(err, kernels.ErrOutOfMemory) || i%3 != 0 && err != nil {
			t.Errorf("step %d: %v", i, err)
		}
	}
}

// TestAnErrorOfTheDeviceNamesItsKernel runs, in a process of its own, a step whose
// embedding lies where no memory is: the error is final and names the kernel, and with
// Sync the op.
func TestAnErrorOfTheDeviceNamesItsKernel(t *testing.T) {
	const sync = "CUDA_TEST_STRAY_SYNC" // of the child
	if v, ok := os.LookupEnv(sync); ok {
		stray(v == "1")
		return
	}
	for _, c := range []struct{ sync, want string }{{"1", "cuda: embed: kernel copy_rows: illegal address"}, {"0", "kernel copy_rows: illegal address"}} {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestAnErrorOfTheDeviceNamesItsKernel$")
		cmd.Env = append(os.Environ(), sync+"="+c.sync)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) || strings.Contains(string(out), "survived") {
			t.Errorf("sync %s: %v, want %q in:\n%s", c.sync, err, c.want, out)
		}
		t.Logf("sync %s: %s", c.sync, out)
	}
}

// stray is the child: it prints the step's error and what the next step says.
func stray(sync bool) {
	opened, err := Open(Options{Sync: sync})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	b := opened.(*Backend)
	x, _ := b.NewBuffer(64 * 64)
	logits, _ := b.NewFloats(64 * 64)
	w := &weight{rows: 64, cols: 64, data: 4096}
	fmt.Println(decodeStep(b, w, x, logits, 2))
	if err := decodeStep(b, w, x, logits, 2); err == nil {
		fmt.Println("the device survived")
	} else if errors.Is(err, kernels.ErrOutOfMemory) {
		fmt.Println("taken for a lack of memory, survived")
	}
	os.Exit(1)
}
