package cpu

import (
	"math"

	"waybill/kernels"
)

// Attention sets dst [N, numHeads*headDim] to causal attention of the q part of
// qkv over the cache.
func (o *Oracle) Attention(dst, qkv kernels.Buffer, c kernels.Cache, a kernels.QKV) {
	b, kv := o.batch, c.(*oracleCache)
	checkLayer(kv.spec, a)
	rows := floats(qkv, len(b.Tokens)*a.Cols(), "qkv")
	out := floats(dst, len(b.Tokens)*a.NumHeads*a.HeadDim, "dst")
	for _, s := range b.Seqs {
		for i := range s.Len {
			t := s.First + i
			for h := range a.NumHeads {
				q := rows[t*a.Cols()+h*a.HeadDim:][:a.HeadDim]
				to := out[(t*a.NumHeads+h)*a.HeadDim:][:a.HeadDim]
				attend64(to, q, kv, a, h/(a.NumHeads/a.NumKVHeads), s.Blocks, s.Context+i)
			}
		}
	}
}

// attend64 computes one head of the token at position pos.
func attend64(dst, q []float32, kv *oracleCache, a kernels.QKV, kvHead int, blocks []int32, pos int) {
	first := 0
	if a.Window > 0 {
		first = max(0, pos-a.Window+1)
	}
	scores := make([]float64, pos+1)
	vec := make([]float32, a.HeadDim)
	top := math.Inf(-1)
	for p := first; p <= pos; p++ {
		kv.read(vec, a.Layer, keys, kvHead, kv.slot(blocks, p))
		var s float64
		for i, v := range vec {
			s += float64(v) * float64(q[i])
		}
		scores[p] = s * float64(a.Scale)
		top = math.Max(top, scores[p])
	}
	var total float64
	sum := make([]float64, a.HeadDim)
	for p := first; p <= pos; p++ {
		w := math.Exp(scores[p] - top)
		total += w
		kv.read(vec, a.Layer, values, kvHead, kv.slot(blocks, p))
		for i, v := range vec {
			sum[i] += w * float64(v)
		}
	}
	for i, v := range sum {
		dst[i] = float32(v / total)
	}
}
