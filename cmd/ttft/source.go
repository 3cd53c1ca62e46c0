package ttft

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"

	"waybill/cmd/ttft/dump"
	"waybill/cmd/ttft/exposition"
)

// levelInName finds the concurrency in a file's name: c8, c=8, conc-8, run_c8.log.
var levelInName = regexp.MustCompile(`(?i)(?:^|[^a-z0-9])c(?:onc|oncurrency)?[-_=]?(\d+)(?:[^a-z0-9]|$)`)

// levelName returns name and concurrency from a label, or else from a file name.
func levelName(label, file string) (string, int) {
	if label == "" {
		label = file
		if file != "" {
			label = filepath.Base(file)
		}
	} else if n, err := strconv.Atoi(label); err == nil {
		label = "c=" + strconv.Itoa(n)
	}
	if m := levelInName.FindStringSubmatch(label); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return "c=" + m[1], n
		}
	}
	return label, 0
}

// Options says how sources are read.
type Options struct {
	Labels   []string          // of the arguments in order; the last one goes on
	Interval time.Duration     // between two scrapes
	Header   map[string]string // of scrapes
	Stdin    io.Reader         // what "-" reads
}

// label returns the i-th argument's label.
func (o *Options) label(i int) string {
	if len(o.Labels) == 0 {
		return ""
	}
	return o.Labels[min(i, len(o.Labels)-1)]
}

// Sources reads levels. Each argument is one of: a file, a folder or "-" (stdin)
// with dump lines, which is also what no argument means; a saved scrape, which
// counts from the server's start; two of them as "before,after"; a URL, which is
// scraped twice. Dump lines of one level are put together, whatever arguments they
// come from. Levels are ordered by concurrency.
func Sources(ctx context.Context, args []string, o Options) ([]*Level, error) {
	if len(args) == 0 {
		args = []string{"-"}
	}
	g := group{levels: map[string]*collector{}}
	for i, arg := range args {
		l, err := g.read(ctx, arg, o.label(i), o)
		if err != nil {
			return nil, err
		}
		if l == nil {
			continue
		}
		if o.label(i) != "" {
			l.Name, l.Concurrency = levelName(o.label(i), "")
		}
		g.scrapes = append(g.scrapes, l)
	}
	out, err := g.done()
	if err != nil {
		return nil, err
	}
	out = append(out, g.scrapes...)
	sort.SliceStable(out, func(i, j int) bool { return out[i].Concurrency < out[j].Concurrency })
	return out, nil
}

// Source reads one side of a comparison: an argument of Sources.
func Source(ctx context.Context, arg string, o Options) ([]*Level, error) {
	return Sources(ctx, []string{arg}, o)
}

// group gathers levels from several arguments.
type group struct {
	// Lines of one level may lie in several files: of replicas, or rotated.
	levels  map[string]*collector
	order   []*collector
	scrapes []*Level
}

// read reads one argument. Dump lines are kept; what scrapes tell is returned.
func (g *group) read(ctx context.Context, arg, label string, o Options) (*Level, error) {
	if strings.HasPrefix(arg, "http://") || strings.HasPrefix(arg, "https://") {
		return Scrape(ctx, arg, o)
	}
	var snapshots []*exposition.Snapshot
	lines := false
	for _, file := range parts(arg) {
		expanded, err := expand(file)
		if err != nil {
			return nil, err
		}
		for _, f := range expanded {
			s, err := g.file(f, label, o)
			if err != nil {
				return nil, err
			}
			if s == nil {
				lines = true
			} else {
				snapshots = append(snapshots, s)
			}
		}
	}
	switch {
	case len(snapshots) == 0:
		return nil, nil
	case lines:
		return nil, fmt.Errorf("ttft: %s: a scrape and dump lines can't be put together", arg)
	case len(snapshots) > 2:
		return nil, fmt.Errorf("ttft: %s: %d scrapes, must be one or two", arg, len(snapshots))
	}
	before, after := &exposition.Snapshot{}, snapshots[len(snapshots)-1]
	if len(snapshots) == 2 {
		before = snapshots[0]
	}
	l, err := FromScrapes(arg, before, after)
	if err == nil && len(snapshots) == 1 {
		l.Notes = append(l.Notes, "counted from the server's start, warm-up included: before,after counts between two scrapes")
	}
	return l, err
}

// file reads a file: a scrape is returned, dump lines are kept. What it holds is
// told from its beginning, not from its name; it is opened once, as it may be a
// pipe.
func (g *group) file(f, label string, o Options) (*exposition.Snapshot, error) {
	name, n := levelName(label, f)
	in := o.Stdin
	if f != "-" {
		opened, err := os.Open(f)
		if err != nil {
			return nil, fmt.Errorf("ttft: %w", err)
		}
		defer opened.Close()
		in = opened
	} else if name == "-" {
		name = "stdin"
	}
	r := bufio.NewReader(in)
	if b, _ := r.Peek(len("# HELP ")); string(b) == "# HELP " || string(b) == "# TYPE " { // too short is neither
		s, err := exposition.Parse(r)
		if err != nil {
			return nil, fmt.Errorf("ttft: %s: %w", f, err)
		}
		return s, nil
	}
	c := g.levels[name]
	if c == nil {
		c = &collector{level: &Level{Name: name, Concurrency: n}}
		g.levels[name] = c
		g.order = append(g.order, c)
	}
	damaged, err := dump.Read(r, c.add)
	c.damaged += damaged
	return nil, err
}

// done returns the levels of the dump lines.
func (g *group) done() ([]*Level, error) {
	var out []*Level
	for _, c := range g.order {
		if len(c.lines) == 0 {
			return nil, fmt.Errorf("ttft: %s holds neither a TTFTSPLIT line (%d damaged ones) nor a scrape of /metrics: was the server started with VT_TTFT_DUMP=1?", c.level.Name, c.damaged)
		}
		out = append(out, c.done())
	}
	return out, nil
}

// parts returns the files of an argument: a name may have a comma of its own.
func parts(arg string) []string {
	if _, err := os.Stat(arg); err == nil {
		return []string{arg}
	}
	return strings.Split(arg, ",")
}

// expand returns the files of a folder, or the file itself.
func expand(file string) ([]string, error) {
	if file == "-" {
		return []string{file}, nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("ttft: %w", err)
	}
	if !info.IsDir() {
		return []string{file}, nil
	}
	entries, err := os.ReadDir(file)
	if err != nil {
		return nil, fmt.Errorf("ttft: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			out = append(out, filepath.Join(file, e.Name()))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("ttft: folder %s holds no file", file)
	}
	return out, nil
}

// Scrape reads a server's /metrics twice and returns what happened between.
func Scrape(ctx context.Context, url string, o Options) (*Level, error) {
	// Two scrapes and no more: scraping takes time of the server that is looked at.
	before, err := exposition.Fetch(ctx, url, o.Header)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(o.Interval):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	after, err := exposition.Fetch(ctx, url, o.Header)
	if err != nil {
		return nil, err
	}
	return FromScrapes(url, before, after)
}
