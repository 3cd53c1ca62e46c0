//go:build cuda

package cuda

import (
	"math"
	"unsafe"

	"gorgonia.org/cu"

	"waybill/kernels"
	"waybill/kernels/cuda/driver"
)

const (
	// maxDraws bounds the rows of a step whose tokens the device draws; of the others
	// it finds the largest logit.
	maxDraws = maxGraphRows
	// drawWords is the length of Row of src/draw.cu, editWords that of Edit.
	drawWords, editWords = 16, 3
	// drawListBytes is what src/draw.cu keeps of a row: 32 segments of 512 entries.
	drawListBytes = 32 * 512 * 8
	// drawShared is the kernel's dynamic shared memory: 8 sums for each of 1024 threads.
	drawShared = 8 * 1024 * 8
	// drawnBytes is the length of Drawn.
	drawnBytes = 16
)

// draws is the state of the rows that the device draws.
type draws struct {
	lists cu.DevicePtr
	// drawn and top are pinned: results, and the best tokens of each.
	drawn, top unsafe.Pointer
	chosen     // of the running step
}

// chosen are rows of logits that the device draws, in the order of the table, and how
// many best tokens each wants.
type chosen struct{ rows, asked []int }

// openDraws makes the memory.
func (b *Backend) openDraws() (err error) {
	d := &b.draws
	if err := driver.AllowShared(b.fn.draw, drawShared); err != nil {
		return err
	}
	if d.lists, err = b.alloc(maxDraws * drawListBytes); err != nil {
		return err
	}
	if d.drawn, err = b.allocPinned(maxDraws * drawnBytes); err != nil {
		return err
	}
	d.top, err = b.allocPinned(maxDraws * kernels.MaxLogprobs * 8)
	return err
}

// of lists the rows of batch that the device draws.
func (d *chosen) of(batch *kernels.Batch) {
	d.rows, d.asked = d.rows[:0], d.asked[:0]
	words := 0
	for i := range batch.Draws {
		w := &batch.Draws[i]
		if !w.On || w.Logprobs > kernels.MaxLogprobs {
			continue
		}
		words += editWords * (len(w.Banned) + len(w.Bias) + len(w.Seen))
		if len(d.rows) == maxDraws || words > maxEditWords {
			return // the host samples the rest
		}
		d.rows, d.asked = append(d.rows, i), append(d.asked, w.Logprobs)
	}
}

// fillDraws writes the parameters of rows, and their edits at word at; it returns where
// these end.
func (t *tables) fillDraws(rows []int, batch *kernels.Batch, at int) int {
	h := t.host
	clear(h[t.drawAt : t.drawAt+drawWords*t.draws])
	for i, row := range rows {
		w := &batch.Draws[row]
		to := h[t.drawAt+drawWords*i : t.drawAt+drawWords*(i+1)]
		to[0], to[1], to[2], to[3] = int32(row)+1, float(w.Scale), int32(w.TopK), float(w.MinP)
		double(to[4:], w.TopP)
		double(to[6:], w.Uniform)
		to[8], to[9], to[10] = float(w.Repetition), float(w.Frequency), float(w.Presence)
		to[11], to[12], to[13] = int32(len(w.Banned)), int32(len(w.Bias)), int32(len(w.Seen))
		to[14], to[15] = int32(at), int32(w.Logprobs)
		for _, id := range w.Banned {
			h[at], at = id, at+editWords
		}
		for _, e := range w.Bias {
			h[at], h[at+1], at = e.ID, float(e.Value), at+editWords
		}
		for _, e := range w.Seen {
			h[at], h[at+1], at = e.ID, e.Count, at+editWords
		}
	}
	return at
}

// float and double are the bits of a number as words.
func float(f float32) int32 { return int32(math.Float32bits(f)) }

func double(to []int32, f float64) {
	bits := math.Float64bits(f)
	to[0], to[1] = int32(uint32(bits)), int32(uint32(bits>>32))
}

// queueDraws queues the kernel, a block for each row of the table.
func (b *Backend) queueDraws() {
	t, d, s := &b.tables, &b.draws, &b.steps
	b.args.Struct().Ptr(s.logits.float).Int(s.vocab).Ptr(t.device).Ptr(t.at(t.drawAt)).Ptr(d.lists).
		Ptr(cu.DevicePtr(uintptr(d.drawn))).Ptr(cu.DevicePtr(uintptr(d.top)))
	b.launch("draw", b.fn.draw, [3]int{t.draws, 1, 1}, 1024, drawShared, &b.args)
}

// readDraws puts the results into out.
func (b *Backend) readDraws(out []kernels.Picked) {
	d := &b.draws
	drawn := unsafe.Slice((*[4]int32)(d.drawn), maxDraws)
	for i, row := range d.rows {
		r, p := &drawn[i], &out[row]
		p.Token, p.Finite, p.Drawn = r[0], r[1] != 0, true
		if d.asked[i] < 0 || !p.Finite || p.Token < 0 {
			continue
		}
		p.Logprob, p.Rank = math.Float32frombits(uint32(r[2])), r[3]
		top := (*kernels.TokenLogprob)(unsafe.Add(d.top, i*kernels.MaxLogprobs*8))
		p.Top = unsafe.Slice(top, min(d.asked[i], b.steps.vocab))
	}
}
