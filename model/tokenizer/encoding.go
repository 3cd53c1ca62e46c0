package tokenizer

import (
	"slices"
	"sync"
)

// ticksPerUnit is the work of one unit of Advance. A tick is the cost of classifying one character, some 5 to
// 10 ns, so a unit stays below a microsecond (measured: see BenchmarkAdvance).
const ticksPerUnit = 64

// encodeStage is what an Encoding does next.
type encodeStage uint8

const (
	stageSanitize encodeStage = iota
	stageSeek
	stageNormalize
	stageSplit
	stageMerge
	stageDone
)

// Encoding is the tokenization of one text, done in slices. It belongs to one goroutine at a time.
type Encoding struct {
	t     *Tokenizer
	o     EncodeOptions
	ids   []int32
	stage encodeStage

	// The stages; of those in one line a tokenizer uses one or the other.

	sanitize sanitizer
	seek     seeker
	compose  composer
	space    spacer
	split    splitter
	words    wordCutter
	merge    merger
}

// Begin starts to tokenize text; nothing is done until Advance. The text and the spans of o are kept, not
// copied.
func (t *Tokenizer) Begin(text string, o EncodeOptions) *Encoding {
	e := &Encoding{}
	e.begin(t, nil, text, o)
	return e
}

// Encode appends the ids of text to dst.
func (t *Tokenizer) Encode(dst []int32, text string, o EncodeOptions) []int32 {
	e := encodings.Get().(*Encoding)
	e.begin(t, dst, text, o)
	for !e.Advance(1 << 30) {
	}
	dst = e.ids
	e.forget()
	encodings.Put(e)
	return dst
}

// encodings holds idle Encodings with their scratch memory, for Encode.
var encodings = sync.Pool{New: func() any { return new(Encoding) }}

// begin sets up all stages; the sanitizer comes first and knows the spans.
func (e *Encoding) begin(t *Tokenizer, ids []int32, text string, o EncodeOptions) {
	e.t, e.o, e.stage = t, o, stageSanitize
	if !slices.IsSortedFunc(o.Plain, compareSpans) {
		e.o.Plain = slices.Clone(o.Plain)
		slices.SortFunc(e.o.Plain, compareSpans)
	}
	// English has four bytes a token; text of short tokens grows the slice twice.
	e.ids = slices.Grow(ids, len(text)/4+len(t.prefix)+len(t.suffix)+1)
	if o.AddSpecial {
		e.ids = append(e.ids, t.prefix...)
	}
	e.merge.t = t
	e.sanitize.begin(text, e.o.Plain)
}

func compareSpans(a, b Span) int { return a.Start - b.Start }

// forget drops what refers to the text and the result.
func (e *Encoding) forget() {
	e.t, e.o, e.ids, e.merge.t, e.merge.piece = nil, EncodeOptions{}, nil, nil, ""
	e.sanitize, e.seek, e.space = sanitizer{}, seeker{}, spacer{}
	e.compose = composer{}
	e.split.begin(nil, "")
	e.words.begin(cutNever, "")
	e.merge.syms.shrink()
	e.merge.heap.shrink()
}

// IDs returns the ids; they are complete once Advance has returned true.
func (e *Encoding) IDs() []int32 { return e.ids }

// largePiece is the length in bytes from which a piece is worth waiting for others: merging it takes some 30 times
// as much memory.
const largePiece = 16 << 10

// Large reports whether a piece of text without a border is being merged, or is next, that takes much memory until
// it is done. Advance returns when it comes to one.
func (e *Encoding) Large() bool { return e.stage == stageMerge && len(e.merge.piece) >= largePiece }

// Advance works for up to units units of less than a microsecond each, and reports whether the ids are complete.
// It overshoots by a step of at most some microseconds; growing the result may add a copy of it.
func (e *Encoding) Advance(units int) (done bool) {
	ticks := max(units, 1) * ticksPerUnit
	for ticks > 0 && e.stage != stageDone {
		e.step(&ticks)
	}
	return e.stage == stageDone
}

// step does some work of the stage that is due. A stage that is not done leaves its state in its own struct.
func (e *Encoding) step(ticks *int) {
	switch e.stage {
	case stageSanitize:
		if e.sanitize.step(ticks) {
			tr := e.t.textAdded
			if e.o.ParseSpecial {
				tr = e.t.allAdded
			}
			e.seek.begin(e.t, tr, e.sanitize.text, e.sanitize.spans)
			e.stage = stageSeek
		}
	case stageSeek:
		if e.seek.next(ticks) {
			e.beginSegment()
		}
	case stageNormalize:
		e.normalize(ticks)
	case stageSplit:
		e.pieces(ticks)
	case stageMerge:
		var done bool
		large := e.Large()
		if e.ids, done = e.merge.step(e.ids, ticks); done {
			e.stage = stageSplit
		}
		if done && large {
			e.merge.syms, e.merge.heap = paged[symbol]{}, paged[uint64]{}
		}
	}
}

// beginSegment starts on the text before the match just found.
func (e *Encoding) beginSegment() {
	segment := e.seek.text[e.seek.segStart:e.seek.segEnd]
	switch {
	case segment == "":
		e.endSegment()
		return
	case e.t.sentence != nil:
		e.space.begin(segment, e.t.sentence, e.seek.segStart == 0)
	case e.t.nfc:
		e.compose.begin(segment)
	default:
		e.split.begin(e.t.rules, segment)
		e.stage = stageSplit
		return
	}
	e.stage = stageNormalize
}

// normalize prepares the segment; short ones are done in one call.
func (e *Encoding) normalize(ticks *int) {
	if e.t.sentence != nil {
		if e.space.step(ticks) {
			e.words.begin(e.t.sentence.cut, e.space.result())
			e.stage = stageSplit
		}
		return
	}
	if e.compose.step(ticks) {
		e.split.begin(e.t.rules, e.compose.result())
		e.stage = stageSplit
	}
}

// pieces hands pieces to the merger until one is left to be merged in slices.
func (e *Encoding) pieces(ticks *int) {
	for *ticks > 0 {
		piece, ok, done := e.nextPiece(ticks)
		switch {
		case done:
			e.endSegment()
			return
		case !ok:
			return
		}
		if e.ids, ok = e.t.recall(e.ids, piece); ok {
			continue
		}
		if id, ok := e.t.whole(piece); ok {
			e.ids = append(e.ids, id)
			e.t.remember(piece, e.ids[len(e.ids)-1:])
			continue
		}
		e.merge.begin(piece, len(e.ids))
		if len(piece) >= largePiece {
			e.stage, *ticks = stageMerge, 0
			return
		}
		if e.ids, done = e.merge.step(e.ids, ticks); !done {
			e.stage = stageMerge
			return
		}
	}
}

// nextPiece returns the next piece of the segment, in either style, that is not found with many others in one loop.
func (e *Encoding) nextPiece(ticks *int) (piece string, ok, done bool) {
	if e.t.sentence != nil {
		return e.words.next(ticks)
	}
	var n int
	if e.ids, n = e.split.known(e.ids, &e.t.memo, ticks); n > 0 {
		return e.split.take(n), true, false
	}
	return e.split.next(ticks)
}

// endSegment appends the added token after the segment, or ends the text.
func (e *Encoding) endSegment() {
	if e.seek.match >= 0 {
		e.ids = append(e.ids, e.t.added[e.seek.match].id)
		e.seek.resume()
		e.stage = stageSeek
		return
	}
	if e.o.AddSpecial {
		e.ids = append(e.ids, e.t.suffix...)
	}
	e.stage = stageDone
}
