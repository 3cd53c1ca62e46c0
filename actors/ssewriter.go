package actors

import (
	"errors"
	"io"
	"sync"
	"time"

	"waybill/actors/waybill"
)

// Stamper is the connection's side of a streamed answer.
type Stamper interface {
	// Sent says that the write just made carried the first text of firsts and the
	// end of lasts. The connection stamps them with the time at which its own
	// last write to the kernel returned.
	Sent(firsts, lasts []*waybill.Waybill)
}

// ErrAborted is returned by First and WriteTo when the answer was cut off: the connection
// must be closed, not ended with an event.
var ErrAborted = errors.New("actors: the response was aborted")

// Writer is the SSE-writer of one response. Its mailbox is a byte buffer that
// the Detokenizer appends events to; its goroutine is the HTTP server's own,
// which runs WriteTo. A collected answer gathers choices instead of bytes.
type Writer struct {
	engine *Engine
	req    *Request

	mu       sync.Mutex
	buf      []byte
	spare    []byte
	firsts   []*waybill.Waybill
	lasts    []*waybill.Waybill
	handoffs []turn
	choices  []Choice
	open     int // sequences that have not ended
	total    Usage
	counted  []bool // prompts that total holds
	firstLen int    // bytes of the choices' first events
	started  bool   // something was appended
	writing  bool   // bytes are on their way into the socket
	inFlight int    // how many
	since    int64  // when the oldest of these and of buf was made; 0: there are none
	bufSince int64  // when the oldest of buf was
	ended    bool   // the terminal event is in, or the answer was cut off
	aborted  bool
	failed   *Failure

	notify    chan struct{} // capacity 1: something changed
	keepAlive time.Duration
}

func newWriter(e *Engine, r *Request, keepAlive time.Duration) *Writer {
	w := &Writer{engine: e, req: r, open: len(r.seqs), counted: make([]bool, len(r.Prompts)), notify: make(chan struct{}, 1), keepAlive: keepAlive}
	if !r.Stream {
		w.choices = make([]Choice, len(r.seqs))
		for i := range w.choices {
			w.choices[i].StopID = -1
		}
	}
	return w
}

func (w *Writer) signal() {
	select {
	case w.notify <- struct{}{}:
	default:
	}
}

// delta appends what a step added to a choice and reports false if the client
// is too far behind. h is counted down when the bytes were written. Detokenizer
// only.
func (w *Writer) delta(d *Delta, h turn) bool {
	w.mu.Lock()
	if w.ended {
		w.mu.Unlock()
		h.done(1)
		return true
	}
	if p := d.Index / w.req.N; d.First && !w.counted[p] {
		// The outputs of one prompt share it: it counts once.
		w.counted[p] = true
		w.total.Prompt += d.Usage.Prompt
		w.total.Cached += d.Usage.Cached
	}
	if d.Finish != waybill.Running {
		w.total.Completion += d.Usage.Completion
		w.open--
	}
	if !w.req.Stream {
		w.collect(d)
		w.ended = w.open == 0
		done := w.ended
		w.mu.Unlock()
		h.done(1)
		if done {
			w.signal()
		}
		return true
	}
	before := len(w.buf)
	if before == 0 && waybill.Observing {
		w.bufSince = waybill.Now()
	}
	w.buf = w.req.Encoder.AppendDelta(w.buf, d)
	if d.First {
		w.firsts = append(w.firsts, d.Bill)
		// An echoed prompt may be larger than the limit without the client being
		// late, so first events are not held against it.
		w.firstLen += len(w.buf) - before
	}
	if d.Finish != waybill.Running {
		w.lasts = append(w.lasts, d.Bill)
		if w.open == 0 {
			w.buf = w.req.Encoder.AppendEnd(w.buf, w.total, w.req.seqs)
			w.ended = true
		}
	}
	late := w.writing // the last step's bytes are not through: no step waits for a slow client
	if h.h != nil && !late {
		w.handoffs = append(w.handoffs, h)
	}
	w.started = true
	ok := len(w.buf) <= writerLimit+w.firstLen || w.ended
	w.mu.Unlock()
	if late {
		h.done(1)
	}
	w.signal()
	return ok
}

// collect adds a delta to its choice.
func (w *Writer) collect(d *Delta) {
	c := &w.choices[d.Index]
	c.Text = append(c.Text, d.Text...)
	c.IDs = append(c.IDs, d.IDs...)
	c.Logprobs = append(c.Logprobs, d.Logprobs...)
	if d.First {
		c.PromptIDs, c.PromptLogprobs = d.PromptIDs, d.PromptLogprobs
	}
	c.Usage, c.Bill = d.Usage, d.Bill
	if d.Finish != waybill.Running {
		c.Finish, c.StopString, c.StopID = d.Finish, d.StopString, d.StopID
	}
}

// backlog returns how many bytes wait for the client and for how long the oldest
// of them has, in nanoseconds. Any goroutine; nil has none.
func (w *Writer) backlog(now int64) (bytes int, lag int64) {
	if w == nil {
		return 0, 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range []int64{w.since, w.bufSince} {
		if at != 0 {
			lag = max(lag, now-at)
		}
	}
	return w.inFlight + len(w.buf), lag
}

// fail ends the answer with an error. Only the first call counts. Detokenizer
// only.
func (w *Writer) fail(f *Failure) {
	w.mu.Lock()
	if !w.ended {
		w.ended, w.failed = true, f
		if w.started && w.req.Stream {
			w.buf = w.req.Encoder.AppendFailure(w.buf, f)
		}
	}
	w.mu.Unlock()
	w.signal()
}

// cut ends the answer without an event: its peer is gone or too slow.
func (w *Writer) cut() {
	w.mu.Lock()
	if !w.ended {
		w.ended, w.aborted = true, true
		w.buf = w.buf[:0]
	}
	w.mu.Unlock()
	w.signal()
}

// First waits until the answer's head can be decided: nil when there is an event
// to send (or, with keep-alive comments, when the first one is due), a Failure if
// the request failed before, ErrAborted if it was cut off. A collected answer is
// complete then.
func (w *Writer) First() error {
	var tick <-chan time.Time
	if w.req.Stream && w.keepAlive > 0 {
		t := time.NewTimer(w.keepAlive)
		defer t.Stop()
		tick = t.C
	}
	for {
		w.mu.Lock()
		started, ended, aborted, failed := w.started, w.ended, w.aborted, w.failed
		w.mu.Unlock()
		switch {
		case aborted:
			return ErrAborted
		case started && w.req.Stream:
			return nil
		case failed != nil:
			return failed
		case ended:
			return nil
		}
		select {
		case <-w.notify:
		case <-tick:
			w.mu.Lock()
			if !w.started {
				w.started = true
				w.buf = w.req.Encoder.AppendKeepAlive(w.buf)
			}
			w.mu.Unlock()
		}
	}
}

// Choices returns the outputs of a collected answer and the sum of their tokens;
// valid after First has returned nil.
func (w *Writer) Choices() ([]Choice, Usage) { return w.choices, w.total }

// WriteTo writes events to dst until the answer has ended: all that is pending
// at a wake is one Write. It runs on the HTTP server's goroutine.
func (w *Writer) WriteTo(dst io.Writer, st Stamper) (int64, error) {
	var n int64
	var firsts, lasts []*waybill.Waybill
	var handoffs []turn
	var tick *time.Timer
	var tickC <-chan time.Time
	if w.keepAlive > 0 {
		tick = time.NewTimer(w.keepAlive)
		defer tick.Stop()
		tickC = tick.C
	}
	for {
		w.mu.Lock()
		out := w.buf
		w.buf, w.spare = w.spare[:0], nil
		firsts, w.firsts = w.firsts, firsts[:0]
		lasts, w.lasts = w.lasts, lasts[:0]
		handoffs, w.handoffs = w.handoffs, handoffs[:0]
		ended, aborted := w.ended, w.aborted
		w.writing, w.inFlight = len(out) > 0, len(out)
		w.since, w.bufSince = w.bufSince, 0
		made := w.since
		w.mu.Unlock()
		if aborted {
			for _, h := range handoffs {
				h.done(1)
			}
			return n, ErrAborted
		}
		if len(out) > 0 {
			from := waybill.Now()
			m, err := dst.Write(out)
			n += int64(m)
			w.engine.metrics.wrote(made, from)
			for _, h := range handoffs {
				h.done(1)
			}
			if err != nil {
				w.engine.Abort(w.req)
				w.cut()
				return n, err
			}
			if len(firsts)+len(lasts) > 0 {
				st.Sent(firsts, lasts)
			}
			if tick != nil {
				tick.Reset(w.keepAlive)
			}
		}
		w.mu.Lock()
		w.spare, w.writing, w.inFlight, w.since = out[:0], false, 0, 0
		more := len(w.buf) > 0
		w.mu.Unlock()
		if ended && !more {
			return n, nil
		}
		if more {
			continue
		}
		select {
		case <-w.notify:
		case <-tickC:
			tick.Reset(w.keepAlive)
			w.mu.Lock()
			if !w.ended && len(w.buf) == 0 {
				w.buf = w.req.Encoder.AppendKeepAlive(w.buf)
			}
			w.mu.Unlock()
		}
	}
}
