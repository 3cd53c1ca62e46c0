package cpu

import "waybill/kernels"

// gather copies the rows of x that b.Logits names to dst.
func gather(b *kernels.Batch, dst, x kernels.Buffer, cols int) {
	from := floats(x, len(b.Tokens)*cols, "x")
	to := floats(dst, len(b.Logits)*cols, "dst")
	for i, t := range b.Logits {
		if t < 0 || int(t) >= len(b.Tokens) {
			panic(bug("logits of token %d of %d", t, len(b.Tokens)))
		}
		copy(to[i*cols:(i+1)*cols], from[int(t)*cols:(int(t)+1)*cols])
	}
}
