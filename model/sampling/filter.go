package sampling

import (
	"cmp"
	"slices"
)

// candidate is a token with its logit or its unnormalised probability.
type candidate struct {
	id    int32
	value float32
}

// ahead orders candidates: larger values first, of equal ones the lower id.
func (a candidate) ahead(b candidate) bool {
	return a.value > b.value || a.value == b.value && a.id < b.id
}

// drawFiltered picks among the tokens that min_p, top_k and top_p leave.
func (m *Sampler) drawFiltered(row []float32, best float32, p *Params, u float64) int32 {
	probs, ids := m.probs[:len(row)], m.ids[:0]
	scale := 1 / p.temperature
	if p.topK > 0 {
		// The cut is on the logits, so few exponentials are left to compute.
		cut := m.kth(row, p.topK)
		probs = probs[:0]
		for i, x := range row {
			if x >= cut {
				ids, probs = append(ids, int32(i)), append(probs, x)
			}
		}
		m.ids = ids
		expSum(probs, probs, best, scale)
	} else {
		expSum(probs, row, best, scale)
	}
	// The best token's value is 1, so min_p is a bound on the others'.
	floor, total := p.minP, 0.0
	if p.o.TopP < 1 {
		floor, total = nucleusFloor(probs, p)
	}
	m.survivors = m.survivors[:0]
	sum := 0.0
	for i, e := range probs {
		if e < floor || e == 0 {
			continue
		}
		c := candidate{int32(i), e}
		if p.topK > 0 {
			c.id = ids[i]
		}
		m.survivors = append(m.survivors, c)
		sum += float64(e)
	}
	keep := m.survivors
	if p.o.TopP < 1 {
		keep, sum = nucleus(keep, p.o.TopP*total)
	}
	left := u * sum
	for _, c := range keep {
		if left -= float64(c.value); left < 0 {
			return c.id
		}
	}
	return keep[len(keep)-1].id // the crumb that rounding left
}

// nucleusFloor returns a value below which no token is in the top p, and the sum
// of all that min_p leaves. The tokens below it, taken together, do not reach the
// share that is left out: it spares sorting the vocabulary.
func nucleusFloor(probs []float32, p *Params) (floor float32, total float64) {
	n := 0
	for _, e := range probs {
		if e >= p.minP && e > 0 {
			total += float64(e)
			n++
		}
	}
	// A little lower, or rounding could drop the last of many equal tokens.
	return max(p.minP, float32((1-p.o.TopP)*total/float64(n)*(1-1e-6))), total
}

// kth returns the k-th largest value of row. All that equal it are in the top k.
func (m *Sampler) kth(row []float32, k int) float32 {
	heap := m.best[:0]
	for _, x := range row[:k] {
		heap = append(heap, candidate{value: x})
	}
	for i := k/2 - 1; i >= 0; i-- {
		sinkMin(heap, i)
	}
	// The heap's root is the smallest of the k best so far. Few values of a long
	// row pass it: about k ln(len/k) of them.
	for _, x := range row[k:] {
		if x > heap[0].value {
			heap[0].value = x
			sinkMin(heap, 0)
		}
	}
	m.best = heap
	return heap[0].value
}

// largest returns the n largest of row, in order.
func (m *Sampler) largest(row []float32, n int) []candidate {
	n = min(n, len(row))
	heap := m.best[:0]
	if n == 0 {
		return heap
	}
	for i, x := range row {
		switch c := (candidate{int32(i), x}); {
		case len(heap) < n:
			heap = append(heap, c)
			if len(heap) == n {
				for i := n/2 - 1; i >= 0; i-- {
					sinkMin(heap, i)
				}
			}
		case x > heap[0].value: // of equal ones the first stays
			heap[0] = c
			sinkMin(heap, 0)
		}
	}
	m.best = heap
	slices.SortFunc(heap, func(a, b candidate) int {
		if d := cmp.Compare(b.value, a.value); d != 0 {
			return d
		}
		return cmp.Compare(a.id, b.id)
	})
	return heap
}

// sinkMin restores a heap whose root is last in order.
func sinkMin(heap []candidate, i int) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && heap[child].ahead(heap[child+1]) {
			child++
		}
		if !heap[i].ahead(heap[child]) {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}

// sinkMax restores a heap whose root is first in order.
func sinkMax(heap []candidate, i int) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && heap[child+1].ahead(heap[child]) {
			child++
		}
		if !heap[child].ahead(heap[i]) {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}

// nucleus keeps the likeliest candidates up to the one with which their sum
// reaches share, and returns them, likeliest first, with their sum. It reorders
// heap, which is not empty.
func nucleus(heap []candidate, share float64) ([]candidate, float64) {
	for i := len(heap)/2 - 1; i >= 0; i-- {
		sinkMax(heap, i)
	}
	// Heapsort in place, largest to the end, until the share is reached.
	sum, end := 0.0, len(heap)
	for end > 0 && (sum < share || end == len(heap)) {
		end--
		heap[0], heap[end] = heap[end], heap[0]
		sum += float64(heap[end].value)
		sinkMax(heap[:end], 0)
	}
	keep := heap[end:]
	slices.Reverse(keep)
	return keep, sum
}
