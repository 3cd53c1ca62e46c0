// Package dump reads the lines that a server prints with VT_TTFT_DUMP=1, out of
// files that may hold anything else besides.
package dump

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// marker begins a line, or follows what a log collector put in front.
const marker = "TTFTSPLIT "

// maxLine bounds what is held of one line; a longer one is none of ours and is
// skipped.
const maxLine = 1 << 16

// Line is one ended sequence.
type Line struct {
	RID, Reason string
	// Values are all numbers of the line by key: times in ms (intake, queued,
	// prefill, decode, e2e, egress, ttft, tail, kernel) and counts (prompt, cached,
	// out, steps_waited). A key that the line lacks was not reached. Keys that
	// other servers add are kept.
	Values map[string]float64
}

// Parse reads one line. It returns false if the line holds no dump, and an error
// if it holds a damaged one.
func Parse(line string) (Line, bool, error) {
	at := strings.Index(line, marker)
	if at < 0 {
		return Line{}, false, nil
	}
	l := Line{Values: map[string]float64{}}
	for _, f := range strings.Fields(line[at+len(marker):]) {
		key, value, ok := strings.Cut(f, "=")
		if !ok || key == "" || value == "" {
			return Line{}, false, fmt.Errorf("dump: %q is not key=value in %q", f, line)
		}
		switch key {
		case "rid":
			l.RID = value
		case "reason":
			l.Reason = value
		default:
			v, err := strconv.ParseFloat(value, 64)
			if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
				return Line{}, false, fmt.Errorf("dump: %q is not a number in %q", f, line)
			}
			if _, twice := l.Values[key]; twice {
				return Line{}, false, fmt.Errorf("dump: %s stands twice in %q", key, line)
			}
			l.Values[key] = v
		}
	}
	if len(l.Values) == 0 {
		return Line{}, false, fmt.Errorf("dump: no values in %q", line)
	}
	return l, true, nil
}

// Read calls each for every dump line of r. Damaged lines are counted, not fatal:
// a crash or a rotated log cuts lines.
func Read(r io.Reader, each func(Line)) (damaged int, err error) {
	br := bufio.NewReaderSize(r, maxLine)
	for {
		raw, err := br.ReadSlice('\n')
		full := errors.Is(err, bufio.ErrBufferFull)
		if len(raw) > 0 && !full {
			l, ok, bad := Parse(string(bytes.TrimRight(raw, "\r\n")))
			switch {
			case bad != nil:
				damaged++
			case ok:
				each(l)
			}
		}
		for full { // the rest of a line that is too long
			_, err = br.ReadSlice('\n')
			full = errors.Is(err, bufio.ErrBufferFull)
		}
		if errors.Is(err, io.EOF) {
			return damaged, nil
		}
		if err != nil {
			return damaged, fmt.Errorf("dump: %w", err)
		}
	}
}
