package actors

import (
	"io"
	"sync/atomic"
	"time"
)

// LineWriter hands whole lines to a slow writer, such as a stderr that is piped
// to something that stands still, from a goroutine of its own. It never blocks:
// lines that find no place are dropped and counted.
type LineWriter struct {
	lines   chan []byte // nil: the end
	dropped atomic.Int64
	done    chan struct{}
}

// NewLineWriter starts a LineWriter in front of w. Close ends it.
func NewLineWriter(w io.Writer) *LineWriter {
	d := &LineWriter{lines: make(chan []byte, queuedLines), done: make(chan struct{})}
	go func() {
		defer close(d.done)
		for l := range d.lines {
			if l == nil {
				return
			}
			if _, err := w.Write(l); err != nil {
				d.dropped.Add(1)
			}
		}
	}()
	return d
}

// Write queues a copy of p, one or more whole lines, or drops and counts it. It
// always succeeds. Any goroutine; what comes behind Close is lost.
func (d *LineWriter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	select {
	case d.lines <- append([]byte(nil), p...):
	default:
		d.dropped.Add(1)
	}
	return len(p), nil
}

// Dropped returns how many lines were lost.
func (d *LineWriter) Dropped() int64 { return d.dropped.Load() }

// Close writes what is queued and ends the goroutine. A writer that stands still
// is left behind after linePatience: it must not keep the process from ending.
func (d *LineWriter) Close() error {
	t := time.NewTimer(linePatience)
	defer t.Stop()
	// The end is a message: a closed channel would make a late Write panic.
	select {
	case d.lines <- nil:
	case <-t.C:
		return nil
	}
	select {
	case <-d.done:
	case <-t.C:
	}
	return nil
}
