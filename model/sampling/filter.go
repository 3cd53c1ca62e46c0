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
	scale := 1 / p.temperature
	// Both cuts are on the value, so they act as one.
	cut := banned
	if p.topK > 0 {
		cut = m.kth(row, p.topK)
	}
	m.survivors = m.survivors[:0]
	total := 0.0
	for i, x := range row {
		if x < cut {
			continue
		}
		d := (x - best) * scale
		if d < p.minLogit {
			continue
		}
		if e := exp(d); e > 0 {
			m.survivors = append(m.survivors, candidate{int32(i), e})
			total += float64(e)
		}
	}
	keep := m.survivors
	if p.o.TopP < 1 {
		keep, total = nucleus(keep, total, p.o.TopP)
	}
	left := u * total
	for _, c := range keep {
		if left -= float64(c.value); left < 0 {
			return c.id
		}
	}
	return keep[len(keep)-1].id // the crumb that rounding left
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

// nucleus keeps the likeliest candidates up to the one that reaches the share p
// of total, and returns them, likeliest first, with their sum. c is reordered.
func nucleus(c []candidate, total, p float64) ([]candidate, float64) {
	// Tokens below this are in no nucleus: all of them together do not reach the
	// share that is left out. It spares sorting the vocabulary. A little lower,
	// or rounding could leave out the last of many equal ones.
	floor := (1 - p) * total / float64(len(c)) * (1 - 1e-9)
	heap := c[:0]
	for _, x := range c {
		if float64(x.value) >= floor {
			heap = append(heap, x)
		}
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		sinkMax(heap, i)
	}
	// Heapsort in place, largest to the end, until the share is reached.
	sum, end := 0.0, len(heap)
	for end > 0 && (sum < p*total || end == len(heap)) {
		end--
		heap[0], heap[end] = heap[end], heap[0]
		sum += float64(heap[end].value)
		sinkMax(heap[:end], 0)
	}
	keep := heap[end:]
	slices.Reverse(keep)
	return keep, sum
}
