package top

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"charm.land/lipgloss/v2"

	"waybill/actors"
)

var (
	bold  = lipgloss.NewStyle().Bold(true)
	faint = lipgloss.NewStyle().Faint(true)
	red   = lipgloss.NewStyle().Foreground(lipgloss.Color("1"))
	green = lipgloss.NewStyle().Foreground(lipgloss.Color("2"))
)

// screen returns the whole picture, cut to the terminal's height.
func (m *model) screen() string {
	var b strings.Builder
	b.WriteString(m.header())
	switch {
	case m.last == nil && m.err != nil:
		fmt.Fprintf(&b, "\n%s\n", red.Render(plain(m.err.Error())))
	case m.last == nil:
		b.WriteString("\nwaiting for the first sample\n")
	default:
		if m.err != nil {
			fmt.Fprintf(&b, "%s\n", red.Render(plain(m.err.Error())+"; this is the last picture"))
		}
		[]func(*strings.Builder, *actors.Snapshot){m.overview, m.actors, m.requests, m.stepTable}[m.tab](&b, m.last)
	}
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	if m.height > 0 && len(lines) > m.height-1 {
		lines = lines[:m.height-1]
	}
	if m.height > 0 {
		lines = append(lines, faint.Render("1-4 views  p pause  q quit"))
	}
	for i, l := range lines {
		if m.height > 0 && lipgloss.Width(l) > m.width {
			lines[i] = lipgloss.NewStyle().MaxWidth(m.width).Render(l)
		}
	}
	return strings.Join(lines, "\n")
}

// header names the server and the views.
func (m *model) header() string {
	name, state := m.url, faint.Render("connecting")
	if s := m.last; s != nil {
		name = plain(s.Model) + " at " + m.url
		state = green.Render("ready")
		if !s.Ready {
			state = red.Render("not ready: " + plain(s.NotReady))
		}
	}
	if m.paused {
		state += " paused"
	}
	var t []string
	for i, tab := range tabs {
		label := fmt.Sprintf("%d %s", i+1, tab)
		if i == m.tab {
			label = bold.Render("[" + label + "]")
		}
		t = append(t, label)
	}
	return fmt.Sprintf("%s  %s  %s\n%s\n\n", bold.Render("waybill"), state, name, strings.Join(t, "  "))
}

// overview shows the pipeline and the numbers beside it.
func (m *model) overview(b *strings.Builder, s *actors.Snapshot) {
	rows := [][]string{{"stage", "actors", "busy", "waiting", "oldest", "per s", "wait p50", "p99", "handle p50", "p99", "state"}}
	for _, g := range s.Pipeline {
		rows = append(rows, []string{
			g.Kind, fmt.Sprint(g.Actors), percent(g.Utilisation), fmt.Sprint(g.Depth), millis(g.OldestMs), fmt.Sprintf("%.1f", g.PerS),
			millis(g.WaitP50Us / 1e3), millis(g.WaitP99Us / 1e3), millis(g.HandleP50Us / 1e3), millis(g.HandleP99Us / 1e3), g.State + " " + millis(g.StateSinceMs),
		})
	}
	table(b, rows, 1)
	p, k, r := s.Places, s.Memory, s.Runtime
	fmt.Fprintf(b, "\nsequences  intake %d  waiting %d  running %d  places %d of %d\n", p.Intake, p.Waiting, p.Running, p.Used, p.Limit)
	steps, prompt, output := len(s.Steps), 0, 0
	length := 0.0
	for _, x := range s.Steps {
		prompt, output, length = prompt+x.Prefill, output+x.Decode, length+x.Ms
	}
	if seconds := s.IntervalMs / 1e3; seconds > 0 && steps > 0 {
		fmt.Fprintf(b, "last second  %.1f steps of %s  %.0f prompt tokens  %.0f output tokens\n", float64(steps)/seconds, millis(length/float64(steps)), float64(prompt)/seconds, float64(output)/seconds)
	}
	fmt.Fprintf(b, "KV blocks  %s  used %d  cached %d  free %d  preemptions %d\n", bar(k.BlocksUsed, k.BlocksTotal, 20), k.BlocksUsed, k.BlocksCached, k.BlocksFree, k.Preemptions)
	if k.PrefixQueries > 0 {
		fmt.Fprintf(b, "prefix cache  %s of %d prompt tokens found\n", percent(float64(k.PrefixHits)/float64(k.PrefixQueries)), k.PrefixQueries)
	}
	if s.GPU.Available {
		for _, d := range s.GPU.Devices {
			fmt.Fprintf(b, "GPU %d  %s  %s busy  %d of %d MiB  %s  %s  %s\n", d.Index, plain(d.Name), reported(d.Utilisation, percent), d.MemoryUsed>>20, d.MemoryTotal>>20,
				reported(d.PowerW, whole("W")), reported(d.TempC, whole("°C")), plain(d.Throttle))
		}
	} else {
		fmt.Fprintf(b, "GPU  %s\n", plain(s.GPU.Reason))
	}
	fmt.Fprintf(b, "runtime  %d goroutines  scheduling p99 %s  GC pause p99 %s  heap %d MiB\n", r.Goroutines, millis(r.SchedP99Us/1e3), millis(r.GCPauseP99/1e3), r.HeapBytes>>20)
	fmt.Fprintf(b, "watching  %.2f ms/s  %d of %d viewers\n", s.Cost.MsPerS, s.Cost.Viewers, s.Cost.MaxViewers)
	for _, x := range s.Stuck {
		if !x.Over {
			fmt.Fprintln(b, red.Render(fmt.Sprintf("stuck: %s in %s for %s", plain(x.Actor), plain(x.Message), millis(x.ForMs))))
		}
	}
	for _, c := range append(append([]actors.CountView(nil), s.Dropped.Requests...), s.Dropped.Messages...) {
		if c.Count > 0 {
			fmt.Fprintf(b, "%s %d\n", faint.Render(plain(c.Reason)), c.Count)
		}
	}
}

// actors shows the table of actors and the last failures.
func (m *model) actors(b *strings.Builder, s *actors.Snapshot) {
	rows := [][]string{{"actor", "busy", "waiting", "per s", "wait p50", "p99", "handle p50", "p99", "failures", "state"}}
	for _, a := range s.Actors {
		rows = append(rows, []string{
			a.Name, percent(a.Utilisation), fmt.Sprint(a.Depth), fmt.Sprintf("%.1f", a.PerS),
			millis(a.WaitP50Us / 1e3), millis(a.WaitP99Us / 1e3), millis(a.HandleP50Us / 1e3), millis(a.HandleP99Us / 1e3), fmt.Sprint(a.Panics), a.State + " " + millis(a.StateMs),
		})
	}
	table(b, rows, 1)
	for _, r := range s.Restarts {
		fmt.Fprintf(b, "\n%s %s: %s\n  %s\n", clock(r.At), bold.Render(plain(r.Actor)), red.Render(plain(r.Reason)), plain(r.Lost))
	}
}

// requests shows sequences under way, then the slowest kept.
func (m *model) requests(b *strings.Builder, s *actors.Snapshot) {
	list := func(title string, rs []actors.RequestView) {
		rows := [][]string{{title, "state", "arrived", "time", "TTFT", "prompt", "cached", "output", "unsent", "lag"}}
		for _, r := range rs {
			rows = append(rows, []string{
				r.RID, r.State, clock(r.Arrived), millis(r.AgeMs), millis(r.TTFTMs), fmt.Sprint(r.Prompt), fmt.Sprint(r.Cached), fmt.Sprint(r.Output), fmt.Sprint(r.Pending), millis(r.LagMs),
			})
		}
		table(b, rows, 2)
	}
	list(fmt.Sprintf("running (%d)", s.Requests.Open), s.Requests.Live)
	b.WriteByte('\n')
	list("slowest", s.Requests.Slowest)
}

// stepTable shows the last steps, newest first.
func (m *model) stepTable(b *strings.Builder, _ *actors.Snapshot) {
	rows := [][]string{{"step", "launched", "time", "expected", "rows", "prompt tokens", "decode rows", "gap", "gap by"}}
	for i := len(m.steps) - 1; i >= 0; i-- {
		x := m.steps[i]
		rows = append(rows, []string{
			fmt.Sprintf("%d.%d", x.Epoch, x.Step), clock(x.At), millis(x.Ms), millis(x.Predicted), fmt.Sprint(x.Rows), fmt.Sprint(x.Prefill), fmt.Sprint(x.Decode), millis(x.GapUs / 1e3), x.GapActor,
		})
	}
	table(b, rows, 1)
}

// table aligns columns: the first text ones to the left, numbers to the right, the
// last one to the left if it is text. Cells are made plain here.
func table(b *strings.Builder, rows [][]string, text int) {
	widths := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, c := range r {
			c = plain(c)
			r[i], widths[i] = c, max(widths[i], lipgloss.Width(c))
		}
	}
	for n, r := range rows {
		var line strings.Builder
		for i, c := range r {
			pad := strings.Repeat(" ", widths[i]-lipgloss.Width(c))
			if i < text || i == len(r)-1 {
				line.WriteString(c + pad + "  ")
			} else {
				line.WriteString(pad + c + "  ")
			}
		}
		l := strings.TrimRight(line.String(), " ")
		if n == 0 {
			l = faint.Render(l)
		}
		b.WriteString(l + "\n")
	}
}

// plain makes text from the server safe for a terminal: control characters could
// move the cursor or worse.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return '·'
		}
		return r
	}, s)
}

// millis prints milliseconds with a fitting unit; 0 is nothing.
func millis(ms float64) string {
	switch {
	case ms == 0:
		return "-"
	case ms < 1:
		return fmt.Sprintf("%.0fµs", ms*1e3)
	case ms < 1000:
		return fmt.Sprintf("%.1fms", ms)
	case ms < 120e3:
		return fmt.Sprintf("%.1fs", ms/1e3)
	}
	return fmt.Sprintf("%.0fmin", ms/60e3)
}

// percent prints a share of 1.
func percent(v float64) string { return fmt.Sprintf("%.0f%%", 100*v) }

// clock prints Unix milliseconds as a time of day.
func clock(ms float64) string {
	return time.UnixMicro(int64(ms * 1e3)).Format("15:04:05.000")
}

// bar draws a share of total with n characters.
func bar(used, total int64, n int) string {
	full := 0
	if total > 0 {
		full = max(0, min(n, int((used*int64(n)+total-1)/total)))
	}
	return strings.Repeat("█", full) + strings.Repeat("░", n-full)
}

// reported shows a device's number, which is negative if it does not report it.
func reported(v float64, show func(float64) string) string {
	if v < 0 {
		return "-"
	}
	return show(v)
}

// whole shows a number without decimals and its unit.
func whole(unit string) func(float64) string {
	return func(v float64) string { return fmt.Sprintf("%.0f %s", v, unit) }
}
