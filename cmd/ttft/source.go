package ttft

import (
	"bytes"
	"context"
	"errors"
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
	Labels   []string          // of the files in order; the last one goes on
	Interval time.Duration     // between two scrapes
	Header   map[string]string // of scrapes
	Stdin    io.Reader         // what "-" reads
}

// label returns the i-th file's label.
func (o *Options) label(i int) string {
	if len(o.Labels) == 0 {
		return ""
	}
	return o.Labels[min(i, len(o.Labels)-1)]
}

// Files reads dump lines from files, folders and "-" (stdin), which is also what
// no file at all means. Files of one level are put together. Levels are ordered
// by concurrency.
func Files(files []string, o Options) ([]*Level, error) {
	if len(files) == 0 {
		files = []string{"-"}
	}
	// Lines of one level may lie in several files: of replicas, or rotated.
	levels := map[string]*collector{}
	var order []*collector
	take := func(name string, n int, r io.Reader) error {
		c := levels[name]
		if c == nil {
			c = &collector{level: &Level{Name: name, Concurrency: n}}
			levels[name] = c
			order = append(order, c)
		}
		damaged, err := dump.Read(r, c.add)
		c.damaged += damaged
		return err
	}
	for i, file := range files {
		expanded, err := expand(file)
		if err != nil {
			return nil, err
		}
		for _, f := range expanded {
			name, n := levelName(o.label(i), f)
			if f == "-" {
				if name == "-" {
					name = "stdin"
				}
				if err := take(name, n, o.Stdin); err != nil {
					return nil, err
				}
				continue
			}
			in, err := os.Open(f)
			if err != nil {
				return nil, fmt.Errorf("ttft: %w", err)
			}
			err = take(name, n, in)
			in.Close()
			if err != nil {
				return nil, err
			}
		}
	}
	var out []*Level
	for _, c := range order {
		if len(c.lines) == 0 {
			return nil, fmt.Errorf("ttft: %s holds no TTFTSPLIT line (%d damaged ones): was the server started with VT_TTFT_DUMP=1?", c.level.Name, c.damaged)
		}
		out = append(out, c.done())
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Concurrency < out[j].Concurrency })
	return out, nil
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

// Source reads one side of a comparison: a URL is scraped twice; "before,after"
// are two saved scrapes; a file with a scrape counts from the server's start;
// anything else holds dump lines.
func Source(ctx context.Context, arg string, o Options) ([]*Level, error) {
	if strings.HasPrefix(arg, "http://") || strings.HasPrefix(arg, "https://") {
		l, err := Scrape(ctx, arg, o)
		if err != nil {
			return nil, err
		}
		return []*Level{l}, nil
	}
	files := strings.Split(arg, ",")
	// What a file holds is told from its beginning, not from its name.
	snapshots, err := saved(files)
	if err != nil {
		return nil, err
	}
	if snapshots == nil {
		return Files(files, o)
	}
	// One scrape: everything since the server's start, warm-up included.
	var before *exposition.Snapshot
	switch len(snapshots) {
	case 1:
		if before, err = exposition.Parse(strings.NewReader("")); err != nil {
			return nil, err
		}
	case 2:
		before = snapshots[0]
	default:
		return nil, fmt.Errorf("ttft: %s: %d scrapes, must be one or two", arg, len(snapshots))
	}
	l, err := FromScrapes(arg, before, snapshots[len(snapshots)-1])
	if err != nil {
		return nil, err
	}
	return []*Level{l}, nil
}

// saved returns the scrapes that the files hold, or nil if they are something else.
func saved(files []string) ([]*exposition.Snapshot, error) {
	var out []*exposition.Snapshot
	for _, f := range files {
		if info, err := os.Stat(f); f == "-" || err == nil && info.IsDir() {
			return nil, nil
		}
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("ttft: %w", err)
		}
		if !bytes.HasPrefix(b, []byte("# HELP ")) && !bytes.HasPrefix(b, []byte("# TYPE ")) {
			if out != nil {
				return nil, errors.New("ttft: a scrape and dump lines can't be put together")
			}
			return nil, nil
		}
		s, err := exposition.Parse(bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("ttft: %s: %w", f, err)
		}
		out = append(out, s)
	}
	return out, nil
}
