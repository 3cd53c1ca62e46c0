package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"waybill/actors"
	"waybill/kernels"
	"waybill/kernels/cpu"
	"waybill/kernels/cuda"
	"waybill/kernels/cuda/telemetry"
	"waybill/model"
)

const (
	// cpuKVBytes is the KV memory on a CPU where none is asked for.
	cpuKVBytes = 1 << 30
	// gpuSpare is device memory that is left alone for recorded steps.
	gpuSpare = 1 << 30
	// maxIntakes bounds the tokenizing actors on a GPU machine: one feeds some
	// 10 MB/s, and the step's own threads need cores.
	maxIntakes = 8
	// gpuChunkMs is the longest prefill chunk on a GPU while others stream: some
	// 2000 tokens of an 8B model, where matrix products reach their full rate. Three
	// times as much made the last of 32 clients' first token 2 % earlier, the median
	// one twice as late, and the streams' gaps twice as long (docs/adr/0004).
	gpuChunkMs = 50
	// gpuChunkUnit is the rows of a tile of a GPU's products of many rows: a step of 2,048
	// of an 8B model took 46.7 ms, one of nine more 50 (H200, docs/GPU.md).
	gpuChunkUnit = 256
	// cpuChunkMs is the longest prefill chunk on a CPU while others stream, where a decode
	// step is 5 to 10 ms: chunks as short as that spend half of the time on decode
	// rows. 8 clients that came together had their first token after 2.4 s with chunks
	// of 10 ms and after 0.4 s with 30 or more (p50, 256 tokens in; docs/adr/0004), while a
	// stream still gets its next one within some 50 ms.
	cpuChunkMs = 40
)

// device is where a model is served.
type device struct {
	backend kernels.Backend
	gpu     bool
	intakes int
	note    string
}

// openDevice opens what --device asks for; auto takes a GPU if there is one that can
// be used. It resolves the flags whose defaults depend on the device.
func (c *serveCmd) openDevice(math cpu.Math) (device, error) {
	if c.Device != "cpu" {
		b, err := cuda.Open(cuda.Options{Sync: os.Getenv("WAYBILL_CUDA_SYNC") == "1", Fault: gpuFault()})
		if err == nil {
			c.deviceDefaults(256, 8192, gpuChunkMs)
			return device{backend: b, gpu: true, intakes: max(1, min(maxIntakes, runtime.NumCPU()-4))}, nil
		}
		if c.Device == "cuda" {
			return device{}, fmt.Errorf("--device cuda: %w", err)
		}
		if !errors.Is(err, cuda.ErrNotBuilt) {
			fmt.Fprintf(os.Stderr, "waybill: computing on the CPU: %v\n", err)
		}
	}
	c.deviceDefaults(32, 2048, cpuChunkMs)
	threads := c.Threads
	if threads <= 0 {
		threads = runtime.NumCPU()
	}
	// With every P computing, a ready socket waits for the runtime's monitor, up
	// to 15 ms; two more Ps bring it to some 30 µs (measured).
	runtime.GOMAXPROCS(threads + 2)
	b, err := cpu.New(cpu.Options{Threads: threads, Math: math, Level: os.Getenv("WAYBILL_CPU")})
	if err != nil {
		return device{}, err
	}
	return device{backend: b, intakes: max(1, runtime.NumCPU()-threads), note: fmt.Sprintf("%d threads, ", threads)}, nil
}

// gpuTelemetry opens the driver's management library. A server without it serves; the console says why there is none.
func gpuTelemetry() func() ([]kernels.GPUInfo, error) {
	read, err := telemetry.Open()
	if err != nil {
		return func() ([]kernels.GPUInfo, error) { return nil, err }
	}
	return read
}

// deviceDefaults fills in what was not asked for.
func (c *serveCmd) deviceDefaults(seqs, tokens, chunkMs int) {
	for _, f := range []struct {
		flag *int
		v    int
	}{{&c.MaxNumSeqs, seqs}, {&c.MaxNumBatchedTokens, tokens}} {
		if *f.flag == byDevice {
			*f.flag = f.v
		}
	}
	if c.PrefillChunkMs == 0 {
		c.PrefillChunkMs = chunkMs
	}
}

// kvType resolves --kv-cache-dtype. The GPU stores bfloat16 only.
func (d device) kvType(flag string, m *model.Model, math cpu.Math) kernels.DType {
	if d.gpu && flag == "auto" {
		return kernels.BF16
	}
	return kvType(flag, m, math)
}

// kvBytes returns the memory for keys and values: what was asked for, or on a GPU what
// --gpu-memory-utilization leaves beside weights, activations and what the largest
// step, which is run once, takes besides.
func (c *serveCmd) kvBytes(m *model.Model, d device, cfg *actors.Config) (int64, error) {
	if c.KVCacheMemoryBytes != "" {
		n, err := parseBytes(c.KVCacheMemoryBytes)
		if err != nil {
			return 0, fmt.Errorf("--kv-cache-memory-bytes: %w", err)
		}
		return n, nil
	}
	step, ok := d.backend.(kernels.Stepper)
	if !ok {
		return cpuKVBytes, nil
	}
	var err error
	if cfg.Scratch, err = m.NewScratch(c.MaxNumBatchedTokens, actors.LogitRows(c.MaxNumSeqs)); err != nil {
		return 0, fmt.Errorf("--max-num-batched-tokens %d: %w", c.MaxNumBatchedTokens, err)
	}
	if err := m.Profile(step, cfg.Scratch, c.BlockSize, cfg.MaxModelLen, cfg.KVType); err != nil {
		return 0, fmt.Errorf("--max-num-batched-tokens %d: %w", c.MaxNumBatchedTokens, err)
	}
	free, total, err := step.Memory()
	if err != nil {
		return 0, err
	}
	left := min(free-gpuSpare, free-int64((1-c.GPUMemoryUtilization)*float64(total)))
	if left <= 0 {
		return 0, fmt.Errorf("--gpu-memory-utilization %g: weights and the largest step leave %d of %d MiB, of which %d MiB are not to be used: nothing is left for the KV cache",
			c.GPUMemoryUtilization, free>>20, total>>20, max(gpuSpare, int64((1-c.GPUMemoryUtilization)*float64(total)))>>20)
	}
	return left, nil
}

// orAuto names a size that was computed.
func orAuto(size string) string {
	if size == "" {
		return "(computed)"
	}
	return size
}
