// Package kerneltest runs every op of a kernels.Backend against the oracle of
// package cpu, on odd shapes and poisoned memory, and measures it.
//
// Tolerances are derived, not tuned: with u the relative error of one rounding
// (2^-24 in float32), a sum of n rounded terms is off by at most n*u times the sum of the
// terms' magnitudes (Higham, Accuracy and Stability of Numerical Algorithms,
// section 3.1). Every check states its n.
package kerneltest

import (
	"math"
	"math/rand/v2"
	"testing"

	"waybill/kernels"
	"waybill/kernels/cpu"
	"waybill/kernels/quant"
)

// Config names a backend and what it promises.
type Config struct {
	// New makes the backend under test. Run closes it.
	New func() (kernels.Backend, error)
	// Math is its arithmetic, which the oracle follows.
	Math cpu.Math
	// Exact says that a row's result is the same bits whatever is computed beside
	// it, as the CPU promises.
	Exact bool
	// Storage is the relative error of storing an activation or a weight: 2^-8 for
	// bfloat16; 0 means that they are float32. Sums are float32 either way.
	Storage float64
	// KVTypes are the element types of a cache; nil means all.
	KVTypes []kernels.DType
	// Others make backends whose results must equal New's bit for bit, such as
	// the same level with another number of threads.
	Others []func() (kernels.Backend, error)
}

// kvTypes returns the types of a cache to test.
func (c Config) kvTypes() []kernels.DType {
	if c.KVTypes != nil {
		return c.KVTypes
	}
	return kvTypes
}

// Run runs all checks.
func Run(t *testing.T, c Config) {
	RunProducts(t, c)
	t.Run("Rows", c.rows)
	t.Run("Rope", c.rope)
	t.Run("Attention", c.attention)
	t.Run("Stores", c.stores)
	if c.Exact {
		t.Run("Chains", c.chains)
		t.Run("Chunks", c.chunks)
	}
}

// RunProducts runs the checks of weights only. The other ops do not depend on
// Config.Math.
func RunProducts(t *testing.T, c Config) {
	t.Run("MatMul", c.matMul)
	t.Run("NotFinite", c.notFinite)
	if c.Exact {
		t.Run("MatMulRowAlone", c.matMulRowAlone)
	}
	t.Run("PackRefuses", c.packRefuses)
	t.Run("Embed", c.embed)
}

// bench is the two backends of one check, and what is random in it.
type bench struct {
	t       testing.TB
	u       float64 // relative error of one rounding of a sum
	storage float64 // Config.Storage
	rng     *rand.Rand
	under   kernels.Backend
	oracle  kernels.Backend
	best    Yardstick // of a measurement
}

// start makes the backends; they are closed with the test.
func (c Config) start(t testing.TB, seed uint64) *bench {
	return &bench{
		t: t, u: 0x1p-24, storage: c.Storage, rng: rand.New(rand.NewPCG(seed, 1)),
		under: open(t, c.New), oracle: closed(t, cpu.NewOracle(c.Math)),
	}
}

// open makes a backend that is closed with the test.
func open(t testing.TB, make func() (kernels.Backend, error)) kernels.Backend {
	t.Helper()
	b, err := make()
	if err != nil {
		t.Fatal(err)
	}
	return closed(t, b)
}

// closed closes b with the test.
func closed(t testing.TB, b kernels.Backend) kernels.Backend {
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// normal returns n values of a normal distribution, as they can be stored.
func (b *bench) normal(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(b.rng.NormFloat64())
	}
	return b.stored(v)
}

// stored rounds v in place to what an activation can hold.
func (b *bench) stored(v []float32) []float32 {
	if b.storage == 0 {
		return v
	}
	for i, f := range v {
		v[i] = quant.BF16ToF32(quant.F32ToBF16(f))
	}
	return v
}

// guard is how many elements behind a result must stay as they were.
const guard = 64

// poison is what results and guards are filled with before an op: a NaN that no
// arithmetic makes and that bfloat16 can hold.
var poison = math.Float32frombits(0x7fd50000)

// poisoned returns a buffer of n elements and a guard, all NaN.
func poisoned(t testing.TB, b kernels.Backend, n int) kernels.Buffer {
	v := make([]float32, n+guard)
	for i := range v {
		v[i] = poison
	}
	return upload(t, b, v)
}

// upload returns a buffer that holds v.
func upload(t testing.TB, b kernels.Backend, v []float32) kernels.Buffer {
	t.Helper()
	buf, err := b.Upload(v)
	if err != nil {
		t.Fatal(err)
	}
	return buf
}

// result reads n elements of a buffer from poisoned and checks its guard.
func result(t testing.TB, b kernels.Backend, buf kernels.Buffer, n int) []float32 {
	t.Helper()
	v := make([]float32, n+guard)
	b.Read(v, buf)
	for i, g := range v[n:] {
		if math.Float32bits(g) != math.Float32bits(poison) {
			t.Fatalf("element %d was written, the result has %d", n+i, n)
		}
	}
	return v[:n]
}

// near checks got against want; tolerance gives the bound for an index.
func near(t testing.TB, what string, got, want []float32, tolerance func(i int) float64) {
	t.Helper()
	for i := range want {
		g, w := float64(got[i]), float64(want[i])
		if tol := tolerance(i); !(math.Abs(g-w) <= tol) {
			t.Fatalf("%s: element %d is %v, want %v within %.3g, off by %.3g", what, i, g, w, tol, math.Abs(g-w))
		}
	}
}

// same checks that two results are equal bit for bit.
func same(t testing.TB, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %v (%#08x), want %v (%#08x)", what, i,
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}
