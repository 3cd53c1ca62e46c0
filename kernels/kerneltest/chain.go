package kerneltest

import (
	"fmt"
	"math"
	"testing"

	"waybill/kernels"
)

// chain is the gated MLP of a decoder behind its norm: add and normalise, gate and
// up, SiLU·mul, down, add and normalise, next product. A backend may do neighbours
// as one.
type chain struct {
	hidden, inner      int
	gateUp, down       kernels.Weight
	x, residual, w, w2 []float32
}

// run does the chain over the rows from first to end. apart reads a number after
// every op, so that each has to be done by itself.
func (l *chain) run(t testing.TB, b kernels.Backend, first, end int, apart bool) (residual, next []float32) {
	rows, h := end-first, l.hidden
	part := func(v []float32) kernels.Buffer { return upload(t, b, v[first*h:end*h]) }
	res, sum, norm := part(l.residual), part(l.x), poisoned(t, b, rows*h)
	both, gated := poisoned(t, b, rows*2*l.inner), poisoned(t, b, rows*l.inner)
	out, last := poisoned(t, b, rows*h), poisoned(t, b, rows*2*l.inner)
	weight, weight2 := upload(t, b, l.w), upload(t, b, l.w2)
	did := func(buf kernels.Buffer) {
		if apart {
			b.Read(make([]float32, 1), buf)
		}
	}
	step(t, b, &kernels.Batch{}, func() {
		b.AddRMSNorm(norm, res, sum, weight, rows, h, 1e-5)
		did(norm)
		b.MatMul(both, norm, l.gateUp, nil, rows)
		did(both)
		b.SiLUMul(gated, both, rows, l.inner)
		did(gated)
		b.MatMul(out, gated, l.down, nil, rows)
		did(out)
		b.AddRMSNorm(norm, res, out, weight2, rows, h, 1e-5)
		did(norm)
		b.MatMul(last, norm, l.gateUp, nil, rows)
	})
	residual = make([]float32, rows*h)
	b.Read(residual, res)
	result(t, b, norm, rows*h)
	return residual, result(t, b, last, rows*2*l.inner)
}

// chains checks that ops done together give the bits of the same ops done one by
// one (which matMul and rows compare with the oracle), that a row alone gives those
// of a row in a batch, and that the other backends agree.
func (c Config) chains(t *testing.T) {
	for _, d := range dtypes {
		if !d.Quantized() && d != kernels.BF16 { // floats have nothing to round: one is enough
			continue
		}
		t.Run(d.String(), func(t *testing.T) {
			if d.BlockElems() > 32 {
				c.chain(t, 256, 256, d, d)
				return
			}
			c.chain(t, 96, 64, d)
			c.chain(t, 96, 160, d, d)
			c.chain(t, 64, 32, d, kernels.F32)
			c.chain(t, 608, 32, d, d) // more than the matrix unit does at once
		})
	}
}

// chain checks one shape; gate and up are one tensor or two, of the given types.
func (c Config) chain(t *testing.T, h, inner int, types ...kernels.DType) {
	b := c.start(t, uint64(h+inner))
	var gateUp []kernels.HostTensor
	for _, d := range types {
		gateUp = append(gateUp, randomTensor(b.rng, "gate and up", d, 2*inner/len(types), h))
	}
	down := randomTensor(b.rng, "down", types[0], h, inner)
	const most = 70
	l := &chain{hidden: h, inner: inner, x: b.normal(most * h), residual: b.normal(most * h), w: b.normal(h), w2: b.normal(h)}
	l.x[3*h+1] = float32(math.NaN()) // one row is lost, and only that
	on := func(k kernels.Backend) *chain {
		own := *l
		own.gateUp, own.down = pack(t, k, gateUp...), pack(t, k, down)
		return &own
	}
	own := on(b.under)
	allRes, all := own.run(t, b.under, 0, most, true)
	check := func(what string, k kernels.Backend, l *chain, first, end int) {
		t.Helper()
		what = fmt.Sprintf("%s, hidden %d, inner %d, %v, rows %d to %d", what, h, inner, types, first, end)
		res, next := l.run(t, k, first, end, false)
		same(t, what+": residual", res, allRes[first*h:end*h])
		same(t, what+": next product", next, all[first*2*inner:end*2*inner])
	}
	for _, rows := range [][2]int{{0, most}, {5, 6}, {2, 4}, {7, 12}, {4, 20}, {1, 18}, {0, 33}} {
		check("together", b.under, own, rows[0], rows[1])
	}
	for _, make := range c.Others {
		k := open(t, make)
		check("other backend", k, on(k), 0, most)
	}
}
