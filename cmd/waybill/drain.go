package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"waybill/httpapi"
)

// cutPatience is how long cut requests have to take their error event.
const cutPatience = 2 * time.Second

// closePatience is how long the actors have to end once nobody is served.
const closePatience = 5 * time.Second

// sameSignal is how long after a signal another one is the same: timeout(1) sends
// its signal to the process and to its group, a terminal's ^C comes to make and
// from it. Nobody asks twice that fast.
const sameSignal = 100 * time.Millisecond

// lastWordsPatience bounds the last line's way to stderr.
const lastWordsPatience = 200 * time.Millisecond

// lastWords prints why the process ends. A stderr that nobody reads may hold the
// line, but not the end.
func lastWords(v any) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fmt.Fprintln(os.Stderr, "waybill:", v)
	}()
	select {
	case <-done:
	case <-time.After(lastWordsPatience):
	}
}

// serveUntilSignal serves until a signal comes, then drains. A second signal
// ends the process at once.
func (c *serveCmd) serveUntilSignal(srv *httpapi.Server, ln net.Listener, s *served, signals chan os.Signal) error {
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	select {
	case err := <-served:
		return err
	case err := <-s.fatal:
		time.Sleep(100 * time.Millisecond) // the last error events leave
		return exitError{1, err}
	case <-signals:
	}
	go func() {
		time.Sleep(sameSignal)
		for len(signals) > 0 {
			<-signals
		}
		<-signals
		lastWords("second signal, exiting at once")
		os.Exit(1)
	}()
	c.drain(srv, s)
	return nil
}

// drain ends the service without losing a request: unready at once, still
// serving for the grace, then refusing, then cutting what is left.
func (c *serveCmd) drain(srv *httpapi.Server, s *served) {
	srv.Closing()
	time.Sleep(c.DrainGrace)
	s.engine.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), c.ShutdownTimeout)
	defer cancel()
	if s.engine.Wait(ctx) != nil {
		s.engine.CutAll()
		after, cancel := context.WithTimeout(context.Background(), cutPatience)
		defer cancel()
		_ = s.engine.Wait(after)
	}
	last, cancel := context.WithTimeout(context.Background(), cutPatience)
	defer cancel()
	_ = srv.Shutdown(last)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = s.engine.Close()
		s.observers.close()
	}()
	select {
	case <-closed:
	case <-time.After(closePatience): // a step hangs: the process ends without it
	}
}
