package cpu

import (
	"math"

	"waybill/kernels"
)

// RopeAndCache normalises (if asked) and rotates q and k of qkv in place and
// writes k and v to the cache.
func (o *Oracle) RopeAndCache(qkv kernels.Buffer, c kernels.Cache, a kernels.QKV) {
	b, kv := o.batch, c.(*oracleCache)
	checkLayer(kv.spec, a)
	rows := floats(qkv, len(b.Tokens)*a.Cols(), "qkv")
	freq := floats(a.InvFreq, a.HeadDim/2, "InvFreq")
	for t, pos := range b.Positions {
		row := rows[t*a.Cols() : (t+1)*a.Cols()]
		for h := range a.NumHeads + a.NumKVHeads {
			head := row[h*a.HeadDim : (h+1)*a.HeadDim]
			norm := a.QNorm
			if h >= a.NumHeads {
				norm = a.KNorm
			}
			if norm != nil {
				rmsNorm64(head, head, floats(norm, a.HeadDim, "norm"), a.NormEps)
			}
			for i, f := range freq {
				// The angle is rounded to float32 as the models' own code does.
				sin, cos := math.Sincos(float64(float32(pos) * f))
				x, y := float64(head[i]), float64(head[i+a.HeadDim/2])
				head[i] = float32(x*cos - y*sin)
				head[i+a.HeadDim/2] = float32(y*cos + x*sin)
			}
		}
		kv.write(a, row, int(b.Slots[t]))
	}
}
