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
	Split ttftSplitCmd `cmd:"" default:"withargs" help:"Print each phase's part of the time to first token (the default): by concurrency level, as c8 in a file's name or --label says."`
	Diff  ttftDiffCmd  `cmd:"" help:"Put two runs or servers side by side and name the phase that explains most of the gap."`
}

// Help is what `waybill ttft --help` adds: that command has no flags of its own.
func (ttftCmd) Help() string {
	return "Without a subcommand it is split: waybill ttft split --help lists its arguments and flags (--label, --metrics, --interval). " +
		"OPENAI_API_KEY is sent to a server that wants a key."
}

// ttftSplitCmd holds the flags of `waybill ttft`.
type ttftSplitCmd struct {
	Sources  []string      `arg:"" optional:"" help:"Each a file or folder with TTFTSPLIT lines among others, a saved /metrics, two of them as before,after, or a server's URL; - or none: stdin."`
	Label    []string      `help:"Concurrency level of each source in order, as c=8 or 8; the last one goes on. Default: from the file's name, as run-c8.log."`
	Metrics  string        `help:"URL of a server, instead of sources."`
	Interval time.Duration `default:"10s" help:"Time between the two readings of a URL's /metrics."`
}

// Run prints the attribution.
func (c *ttftSplitCmd) Run() error {
	o := ttft.Options{Labels: c.Label, Interval: c.Interval, Header: bearer(), Stdin: os.Stdin}
	sources := c.Sources
	if c.Metrics != "" {
		if len(sources) > 0 {
			return exitError{2, errors.New("--metrics and files exclude each other")}
		}
		sources = []string{c.Metrics}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	levels, err := ttft.Sources(ctx, sources, o)
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
	Interval time.Duration `default:"10s" help:"Time between the two readings of a URL's /metrics."`
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
