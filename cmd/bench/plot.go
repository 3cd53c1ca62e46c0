package bench

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strconv"

	"waybill/actors/waybill"
)

// segment is a coloured part of a bar, in ms.
type segment struct {
	name, color string
	height      float64
}

// colors by phase: told apart by lightness too, for those who do not see hues.
var colors = map[string]string{
	waybill.Intake.String(): "#2f4b7c", waybill.Queue.String(): "#d45087", waybill.Prefill.String(): "#f2a65a",
	waybill.Egress.String(): "#1b998b", "outside the server": "#b8b8b8", "TTFT": "#2f4b7c",
}

// segments cuts a run's mean TTFT into the server's phases and what lies outside
// the server, or leaves it whole if the server does not say.
func (s *Summary) segments() []segment {
	mean := s.Samples["ttft"].mean()
	if s.Phases == nil || s.Phases.Count == 0 {
		return []segment{{"TTFT", colors["TTFT"], mean}}
	}
	var out []segment
	for _, p := range ttftParts {
		out = append(out, segment{p.String(), colors[p.String()], s.Phases.Mean[p.String()]})
	}
	rest := math.Max(0, mean-s.Phases.Mean[waybill.TTFT.String()])
	return append(out, segment{"outside the server", colors["outside the server"], rest})
}

// plot draws the mean TTFT by concurrency as an SVG, one bar per run, with marks
// for the median and p99.
func plot(runs []*Summary) []byte {
	const (
		left, right, top, bottom = 70.0, 190.0, 40.0, 50.0
		barWidth, gapWidth       = 46.0, 34.0
		height                   = 320.0
	)
	tallest := 0.0
	for _, s := range runs {
		tallest = max(tallest, s.Samples["ttft"].mean(), s.Samples["ttft"].percentile(99))
	}
	step := niceStep(tallest / 5)
	limit := step * math.Max(1, math.Ceil(tallest/step))
	y := func(v float64) float64 { return top + height*(1-v/limit) }
	inner := math.Max(float64(len(runs))*(barWidth+gapWidth)+gapWidth, 120)
	width := left + inner + right

	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" font-family="sans-serif" font-size="12">`+"\n", width, top+height+bottom)
	b.WriteString(`<rect width="100%" height="100%" fill="#ffffff"/>` + "\n")
	text := func(x, y float64, anchor, s string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(s))
	}
	text(left, top-18, "start", "mean time to first token in ms, by concurrency")
	for v := 0.0; v <= limit*1.0001; v += step {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#dddddd"/>`+"\n", left, y(v), left+inner, y(v))
		text(left-8, y(v)+4, "end", strconv.FormatFloat(v, 'g', 6, 64))
	}
	legend := map[string]bool{}
	legendY := top + 10
	entry := func(name, shape string) {
		if !legend[name] {
			legend[name] = true
			fmt.Fprintf(&b, shape+"\n", left+inner+16, legendY-9)
			text(left+inner+36, legendY+1, "start", name)
			legendY += 20
		}
	}
	for i, s := range runs {
		x := left + gapWidth + float64(i)*(barWidth+gapWidth)
		base := 0.0
		for _, g := range s.segments() {
			fmt.Fprintf(&b, `<rect x="%.1f" y="%.2f" width="%.1f" height="%.2f" fill="%s"><title>%s %.3f ms</title></rect>`+"\n",
				x, y(base+g.height), barWidth, y(base)-y(base+g.height), g.color, html.EscapeString(g.name), g.height)
			base += g.height
			entry(g.name, `<rect x="%.1f" y="%.1f" width="12" height="12" fill="`+g.color+`"/>`)
		}
		for _, m := range []struct {
			name, color string
			p           float64
		}{{"median", "#000000", 50}, {"p99", "#c1121f", 99}} {
			at := y(s.Samples["ttft"].percentile(m.p))
			fmt.Fprintf(&b, `<line x1="%.1f" y1="%.2f" x2="%.1f" y2="%.2f" stroke="%s" stroke-width="2"/>`+"\n", x-5, at, x+barWidth+5, at, m.color)
			entry(m.name, `<rect x="%.1f" y="%.1f" width="12" height="3" fill="`+m.color+`"/>`)
		}
		name := "no limit"
		if s.Concurrency > 0 {
			name = strconv.Itoa(s.Concurrency)
		}
		text(x+barWidth/2, top+height+18, "middle", name)
		if s.Failed > 0 {
			text(x+barWidth/2, top+height+34, "middle", fmt.Sprintf("%d failed", s.Failed))
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// niceStep rounds up to 1, 2 or 5 times a power of ten.
func niceStep(v float64) float64 {
	if !(v > 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if f*power >= v {
			return f * power
		}
	}
	return 10 * power
}
