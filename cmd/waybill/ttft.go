package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"time"

	"waybill/cmd/ttft"
)

// ttftCmd groups `waybill ttft` and `waybill ttft diff`.
type ttftCmd struct {
	Split ttftSplitCmd `cmd:"" default:"withargs" help:"Print each phase's part of the time to first token (the default)."`
	Diff  ttftDiffCmd  `cmd:"" help:"Put two runs or servers side by side and name the phase that explains most of the gap."`
}

// ttftSplitCmd holds the flags of `waybill ttft`.
type ttftSplitCmd struct {
	Files    []string      `arg:"" optional:"" help:"Files or folders with TTFTSPLIT lines among others; - or none: stdin."`
	Label    []string      `help:"Level of each file in order, as c=8. Default: from the file's name."`
	Metrics  string        `help:"URL of a server whose /metrics is read twice, instead of files."`
	Interval time.Duration `default:"10s" help:"Time between the two readings."`
}

// Run prints the attribution.
func (c *ttftSplitCmd) Run() error {
	o := ttft.Options{Labels: c.Label, Interval: c.Interval, Header: bearer(), Stdin: os.Stdin}
	var (
		levels []*ttft.Level
		err    error
	)
	if c.Metrics == "" {
		levels, err = ttft.Files(c.Files, o)
	} else {
		if len(c.Files) > 0 {
			return exitError{2, errors.New("--metrics and files exclude each other")}
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		var l *ttft.Level
		if l, err = ttft.Scrape(ctx, c.Metrics, o); l != nil {
			levels = []*ttft.Level{l}
		}
	}
	if err != nil {
		return err
	}
	ttft.Print(os.Stdout, levels)
	return nil
}

// ttftDiffCmd holds the flags of `waybill ttft diff`.
type ttftDiffCmd struct {
	A        string        `arg:"" help:"File or folder of TTFTSPLIT lines, a server's URL, a saved /metrics, or two of them as before,after."`
	B        string        `arg:"" help:"The other side, of any of these kinds."`
	Interval time.Duration `default:"10s" help:"Time between two readings of a URL."`
}

// Run prints the comparison.
func (c *ttftDiffCmd) Run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	o := ttft.Options{Interval: c.Interval, Header: bearer(), Stdin: os.Stdin}
	var (
		wg     sync.WaitGroup
		levels [2][]*ttft.Level
		errs   [2]error
	)
	// Both at once: two servers are compared over the same time.
	for i, arg := range []string{c.A, c.B} {
		wg.Go(func() { levels[i], errs[i] = ttft.Source(ctx, arg, o) })
	}
	wg.Wait()
	if err := errors.Join(errs[0], errs[1]); err != nil {
		return err
	}
	pairs, err := ttft.Pair(levels[0], levels[1])
	if err != nil {
		return err
	}
	ttft.PrintDiff(os.Stdout, pairs)
	return nil
}

// bearer returns the header that carries the key of a protected server.
func bearer() map[string]string {
	key := os.Getenv("OPENAI_API_KEY")
	if key == "" {
		return nil
	}
	return map[string]string{"Authorization": "Bearer " + key}
}
