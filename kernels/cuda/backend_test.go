//go:build cuda

package cuda_test

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"waybill/kernels"
	"waybill/kernels/cpu"
	"waybill/kernels/cuda"
	"waybill/kernels/kerneltest"
	"waybill/kernels/quant"
)

// These need a GPU: `make cuda-tests` builds them, a GPU machine runs them.

func open() (kernels.Backend, error) { return cuda.Open(cuda.Options{}) }

func stepper(t testing.TB) kernels.Stepper {
	t.Helper()
	return stepperOf(t, cuda.Options{})
}

func stepperOf(t testing.TB, o cuda.Options) kernels.Stepper {
	t.Helper()
	b, err := cuda.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b.(kernels.Stepper)
}

func TestKernels(t *testing.T) {
	kerneltest.Run(t, kerneltest.Config{
		New: open, Math: cpu.F32, Storage: 0x1p-8, KVTypes: []kernels.DType{kernels.BF16},
	})
}

// TestDummyWeightsAreTheLoaders holds the device's generator against splitmix64 on
// the host.
func TestDummyWeightsAreTheLoaders(t *testing.T) {
	b := stepper(t)
	const rows, cols = 37, 64
	f := kernels.Fill{State: 0x0123456789abcdef, Center: 0.25, Spread: math.Sqrt(3.0 / cols)}
	w, err := b.Pack(kernels.HostTensor{Name: "w", DType: kernels.BF16, Rows: rows, Cols: cols, Fill: &f})
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]int32, rows)
	for i := range ids {
		ids[i] = int32(i)
	}
	dst, err := b.NewBuffer(rows * cols)
	if err != nil {
		t.Fatal(err)
	}
	b.Begin(&kernels.Batch{Tokens: ids, Positions: ids, Slots: ids})
	b.Embed(dst, w)
	if err := b.End(); err != nil {
		t.Fatal(err)
	}
	got := make([]float32, rows*cols)
	b.Read(got, dst)
	state := f.State
	for i, v := range got {
		state += 0x9e3779b97f4a7c15
		z := state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		want := quant.BF16ToF32(quant.F32ToBF16(float32(f.Center + f.Spread*(float64(z>>11)/(1<<52)-1))))
		if v != want {
			t.Fatalf("element %d is %v, want %v", i, v, want)
		}
	}
}

const headVocab, headCols = 1008, 64

// head makes a model whose best token is the one that it is fed, and its weight.
func head(t *testing.T, b kernels.Stepper, rng *rand.Rand) (forward kernels.Forward, values []float32) {
	t.Helper()
	values = make([]float32, headVocab*headCols)
	data := make([]byte, 2*len(values))
	for i := range values {
		bits := quant.F32ToBF16(float32(rng.NormFloat64()))
		values[i] = quant.BF16ToF32(bits)
		data[2*i], data[2*i+1] = byte(bits), byte(bits>>8)
	}
	w, err := b.Pack(kernels.HostTensor{Name: "w", DType: kernels.BF16, Rows: headVocab, Cols: headCols, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	x, err := b.NewBuffer(512 * headCols)
	if err != nil {
		t.Fatal(err)
	}
	logits, err := b.NewFloats(512 * headVocab)
	if err != nil {
		t.Fatal(err)
	}
	return func(batch *kernels.Batch) kernels.Buffer {
		b.Embed(x, w)
		b.MatMul(logits, x, w, nil, len(batch.Tokens))
		return logits
	}, values
}

// decodes returns a batch of n rows of one token, drawn from rng.
func decodes(n int, rng *rand.Rand) *kernels.Batch {
	batch := &kernels.Batch{}
	for i := range n {
		batch.Tokens = append(batch.Tokens, int32(rng.IntN(headVocab)))
		batch.Positions = append(batch.Positions, 5)
		batch.Slots = append(batch.Slots, int32(i))
		batch.Logits = append(batch.Logits, int32(i))
		batch.Seqs = append(batch.Seqs, kernels.BatchSeq{First: i, Len: 1, Context: 5, Blocks: []int32{0}})
	}
	return batch
}

// TestStepsThatWerePrepared prepares steps while others run and starts them with other
// tokens, or starts something else in their place; some are queued ahead of their tokens, and
// some of these given up. Every step must pick the tokens that it was started with.
func TestStepsThatWerePrepared(t *testing.T) {
	for _, o := range []cuda.Options{{}, {FirstTakes: 1}} { // with the second every recording has a rest
		t.Run(o.FirstTakes.String(), func(t *testing.T) { prepareSteps(t, o) })
	}
}

// queueAhead does so unless the tests run beside a tool that runs one kernel at a time.
func queueAhead(b kernels.Stepper) {
	if os.Getenv("WAYBILL_TEST_AHEAD") != "0" {
		b.QueueAhead()
	}
}

func prepareSteps(t *testing.T, o cuda.Options) {
	b := stepperOf(t, o)
	rng := rand.New(rand.NewPCG(3, 4))
	forward, _ := head(t, b, rng)
	// Every size is recorded at its second step.
	for _, n := range []int{1, 1, 2, 2, 3, 3, 8, 8} {
		if err := b.Start(decodes(n, rng), forward); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Finish(make([]kernels.Picked, n), nil); err != nil {
			t.Fatal(err)
		}
	}
	running := decodes(3, rng)
	if err := b.Start(running, forward); err != nil {
		t.Fatal(err)
	}
	prepared := 0
	for step := range 200 {
		next := decodes(1+rng.IntN(8), rng)
		if step%5 == 0 {
			next = decodes(300, rng) // of no recorded size
		}
		ready, looks := false, 0
		out := make([]kernels.Picked, len(running.Tokens))
		times, err := b.Finish(out, func(bool) {
			if looks++; looks == 1 && step%3 == 0 {
				b.Prepare(decodes(8, rng)) // that is not to come
			} else if looks <= 2 {
				ready = b.Prepare(next)
			}
			if looks <= 2 && step%4 != 0 {
				queueAhead(b)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range out {
			if p.Token != running.Tokens[i] || !p.Finite {
				t.Fatalf("step %d, %d rows: row %d picked %+v, want token %d", step, len(out), i, p, running.Tokens[i])
			}
		}
		if recorded := len(running.Tokens) <= 8; recorded != (times.Launch >= 0) {
			t.Errorf("step %d, %d rows: launched within %v of the tokens", step, len(out), times.Launch)
		}
		if err := b.ReadLogits(make([]float32, headVocab), 0); err != nil {
			t.Fatal(err)
		}
		switch {
		case step%11 == 0:
			b.GiveUp()
			ready = false
		case step%13 == 0: // waits for the device
			if _, err := b.Upload(make([]float32, 8)); err != nil {
				t.Fatal(err)
			}
			ready = false
		}
		running = next
		if !ready || step%7 == 0 {
			err = b.Start(running, forward)
		} else {
			prepared++
			for i := range running.Tokens {
				running.Tokens[i] = int32(rng.IntN(headVocab))
			}
			err = b.StartPrepared(running.Tokens)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// What is queued ahead must not hold Close up.
	if _, err := b.Finish(make([]kernels.Picked, len(running.Tokens)), func(bool) {
		b.Prepare(decodes(2, rng))
		queueAhead(b)
	}); err != nil {
		t.Fatal(err)
	}
	if t.Logf("%d of 200 steps were prepared", prepared); prepared == 0 {
		t.Error("no step was prepared")
	}
}

// TestStepsPickTheLargestLogit runs steps of every kind over a head whose logits are
// known: eager, recorded, replayed with other tokens, and without logits.
func TestStepsPickTheLargestLogit(t *testing.T) {
	b := stepper(t)
	rng := rand.New(rand.NewPCG(1, 2))
	forward, values := head(t, b, rng)
	for _, n := range []int{1, 3, 8, 33, 300} {
		for range 4 {
			batch := decodes(n, rng)
			if err := b.Start(batch, forward); err != nil {
				t.Fatal(err)
			}
			out := make([]kernels.Picked, n)
			times, err := b.Finish(out, nil)
			if err != nil {
				t.Fatal(err)
			}
			if times.Ended <= times.Started {
				t.Errorf("step from %v to %v", times.Started, times.Ended)
			}
			row := make([]float32, headVocab)
			for i, p := range out {
				// A row's product with itself is the largest by far: no rounding matters.
				if p.Token != batch.Tokens[i] || !p.Finite {
					t.Fatalf("%d rows: row %d picked %+v, want token %d", n, i, p, batch.Tokens[i])
				}
				if err := b.ReadLogits(row, i); err != nil {
					t.Fatal(err)
				}
				want := 0.0
				for _, v := range values[int(p.Token)*headCols : (int(p.Token)+1)*headCols] {
					want += float64(v) * float64(v)
				}
				if math.Abs(float64(row[p.Token])-want) > 1e-5*want {
					t.Fatalf("logit %v, want %v", row[p.Token], want)
				}
			}
		}
	}
	if err := b.Start(&kernels.Batch{}, func(*kernels.Batch) kernels.Buffer { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Finish(nil, nil); err != nil {
		t.Fatal(err)
	}
}

// TestLogitsThatAreNotFiniteAreReported plants an infinity in one of two rows.
func TestLogitsThatAreNotFiniteAreReported(t *testing.T) {
	b := stepper(t)
	const vocab, cols = 64, 32
	h := kernels.HostTensor{Name: "w", DType: kernels.F32, Rows: vocab, Cols: cols, Data: make([]byte, vocab*cols*4)}
	h.Data[4*cols*3+2], h.Data[4*cols*3+3] = 0x80, 0x7f // row 3 begins with an infinity
	w, err := b.Pack(h)
	if err != nil {
		t.Fatal(err)
	}
	x, _ := b.NewBuffer(8 * cols)
	logits, err := b.NewFloats(8 * vocab)
	if err != nil {
		t.Fatal(err)
	}
	batch := &kernels.Batch{Tokens: []int32{3, 4}, Positions: []int32{0, 0}, Slots: []int32{0, 1}, Logits: []int32{0, 1},
		Seqs: []kernels.BatchSeq{{First: 0, Len: 2, Blocks: []int32{0}}}}
	if err := b.Start(batch, func(*kernels.Batch) kernels.Buffer {
		b.Embed(x, w)
		b.MatMul(logits, x, w, nil, 2)
		return logits
	}); err != nil {
		t.Fatal(err)
	}
	out := make([]kernels.Picked, 2)
	if _, err := b.Finish(out, nil); err != nil {
		t.Fatal(err)
	}
	if out[0].Finite {
		t.Errorf("a row with an infinity: %+v", out[0])
	}
}

func TestOpenRefusesDevicesThatAreNotThere(t *testing.T) {
	if b, err := cuda.Open(cuda.Options{Device: 1 << 10}); err == nil {
		b.Close()
		t.Error("no error")
	}
}

// BenchmarkOps measures every op at the sizes of the models it is for.
func BenchmarkOps(b *testing.B) {
	k := stepper(b)
	kerneltest.Measure(b, k, kerneltest.Yardstick{BytesPerSecond: 4.645e12, OpsPerSecond: 790e12})
}
