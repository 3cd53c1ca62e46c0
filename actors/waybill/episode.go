package waybill

import "sync/atomic"

// EpisodeKind says what an episode was.
type EpisodeKind int

// What can happen to a sequence between scheduled and first token, beside
// waiting.
const (
	PrefillChunk EpisodeKind = iota // a step computed some of its prompt
	Preemption                      // it had lost its blocks
)

// String returns the kind in snake case.
func (k EpisodeKind) String() string { return [...]string{"prefill_chunk", "preemption"}[k] }

// Episode is a stretch of a sequence's time. Stamps are nanoseconds of the
// process's clock.
type Episode struct {
	Kind     EpisodeKind
	From, To int64
	// Step is the engine step that computed Tokens prompt tokens; 0 for a
	// preemption.
	Step   uint64
	Tokens int
}

// maxEpisodes bounds what a waybill remembers. A prompt of 100,000 tokens beside
// streams has some 1,000 chunks; the first 256 show their pattern, and the
// counters hold the rest.
const maxEpisodes = 256

// episodes is a list that one goroutine appends to and any may read.
type episodes struct {
	last atomic.Pointer[episodeNode]
	n    int // writer only
}

type episodeNode struct {
	Episode
	before *episodeNode
}

func (l *episodes) add(e Episode) {
	if !Observing || l.n == maxEpisodes {
		return
	}
	l.n++
	l.last.Store(&episodeNode{e, l.last.Load()})
}

// AddChunk notes that a step computed tokens of the prompt. Scheduler only.
func (w *Waybill) AddChunk(step uint64, tokens int, from, to int64) {
	w.PrefillChunks.Add(1)
	w.episodes.add(Episode{Kind: PrefillChunk, From: from, To: to, Step: step, Tokens: tokens})
}

// Episodes returns what is remembered, oldest first. Any goroutine.
func (w *Waybill) Episodes() []Episode {
	var out []Episode
	for n := w.episodes.last.Load(); n != nil; n = n.before {
		out = append(out, n.Episode)
	}
	for i, k := 0, len(out)-1; i < k; i, k = i+1, k-1 {
		out[i], out[k] = out[k], out[i]
	}
	return out
}
