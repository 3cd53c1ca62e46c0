// Package exposition reads the histograms of a server's /metrics: what happened
// between two scrapes, with means that are exact and quantiles that say how much
// the buckets can tell.
package exposition

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"sort"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// maxBody bounds a scrape. The largest real ones have a few MB.
const maxBody = 64 << 20

// Snapshot is one scrape.
type Snapshot struct {
	families map[string]*dto.MetricFamily
}

// scraper has connections of its own that it does not keep: an idle connection in
// a server under measurement is one more thing to explain.
var scraper = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Parse reads text in Prometheus' exposition format.
func Parse(r io.Reader) (*Snapshot, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(io.LimitReader(r, maxBody))
	if err != nil {
		return nil, fmt.Errorf("exposition: %w", err)
	}
	return &Snapshot{families}, nil
}

// Fetch scrapes a URL. Its path may be left out: then it is /metrics.
func Fetch(ctx context.Context, url string, header map[string]string) (*Snapshot, error) {
	const timeout = 10 * time.Second // as Prometheus' own default
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("exposition: %w", err)
	}
	if strings.Trim(req.URL.Path, "/") == "" {
		req.URL.Path = "/metrics"
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := scraper.Do(req)
	if err != nil {
		return nil, fmt.Errorf("exposition: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("exposition: %s: %s", req.URL, resp.Status)
	}
	return Parse(resp.Body)
}

// Names returns the names of all metrics, sorted.
func (s *Snapshot) Names() []string {
	out := make([]string, 0, len(s.families))
	for n := range s.families {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}

// Bucket is one bucket of a histogram.
type Bucket struct {
	LE  float64 // upper bound
	Cum float64 // samples at or below it
}

// Histogram is a histogram or the difference of two scrapes of it.
type Histogram struct {
	Sum, Count float64
	Buckets    []Bucket // by bound; the last one is +Inf
}

// Histogram returns the sum over all label sets that have label = value; an empty
// label matches all. Sets with other buckets than the first are left out. It
// reports false if there is none.
func (s *Snapshot) Histogram(name, label, value string) (Histogram, bool) {
	f := s.families[name]
	if f == nil {
		return Histogram{}, false
	}
	var out Histogram
	found := false
	for _, m := range f.GetMetric() {
		h := m.GetHistogram()
		if h == nil || label != "" && labelOf(m, label) != value {
			continue
		}
		one := convert(h)
		if !found {
			out, found = one, true
			continue
		}
		if !sameBounds(out.Buckets, one.Buckets) {
			continue
		}
		out.Sum += one.Sum
		out.Count += one.Count
		for i := range out.Buckets {
			out.Buckets[i].Cum += one.Buckets[i].Cum
		}
	}
	return out, found
}

// Labels returns the values that a label has in a metric, sorted.
func (s *Snapshot) Labels(name, label string) []string {
	seen := map[string]bool{}
	for _, m := range s.families[name].GetMetric() {
		if v := labelOf(m, label); v != "" {
			seen[v] = true
		}
	}
	out := make([]string, 0, len(seen))
	for v := range seen {
		out = append(out, v)
	}
	sort.Strings(out)
	return out
}

func labelOf(m *dto.Metric, label string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == label {
			return l.GetValue()
		}
	}
	return ""
}

// convert sorts the buckets and completes them with +Inf.
func convert(h *dto.Histogram) Histogram {
	out := Histogram{Sum: h.GetSampleSum(), Count: float64(h.GetSampleCount()) + h.GetSampleCountFloat()}
	for _, b := range h.GetBucket() {
		if le := b.GetUpperBound(); !math.IsNaN(le) && !math.IsInf(le, 1) {
			out.Buckets = append(out.Buckets, Bucket{le, float64(b.GetCumulativeCount()) + b.GetCumulativeCountFloat()})
		}
	}
	sort.Slice(out.Buckets, func(i, j int) bool { return out.Buckets[i].LE < out.Buckets[j].LE })
	out.Buckets = append(out.Buckets, Bucket{math.Inf(1), out.Count})
	return out
}

func sameBounds(a, b []Bucket) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].LE != b[i].LE {
			return false
		}
	}
	return true
}

// Since returns what was added after the scrape before. A histogram that shrank
// or changed its buckets belongs to a server that restarted: then all of it is new.
func (h Histogram) Since(before Histogram) Histogram {
	if before.Count > h.Count || !sameBounds(h.Buckets, before.Buckets) {
		return h
	}
	out := Histogram{Sum: h.Sum - before.Sum, Count: h.Count - before.Count}
	for i, b := range h.Buckets {
		out.Buckets = append(out.Buckets, Bucket{b.LE, b.Cum - before.Buckets[i].Cum})
	}
	return out
}

// Mean returns the exact mean, or 0 without samples.
func (h Histogram) Mean() float64 {
	if h.Count == 0 {
		return 0
	}
	return h.Sum / h.Count
}

// Range is what a histogram can say about a quantile: it lies in (Low, High].
type Range struct {
	Low, High float64
}

// bounded reports whether interpolating in the bucket means something: not in the
// first one, which starts nowhere, and not in the last, which ends nowhere.
func (r Range) bounded() bool { return r.Low > 0 && !math.IsInf(r.High, 1) }

// Quantile returns the bucket that holds the q-quantile (0 to 1), and the value
// interpolated linearly in it, as histogram_quantile does: a guess only unless ok.
func (h Histogram) Quantile(q float64) (r Range, value float64, ok bool) {
	if h.Count <= 0 {
		return Range{}, 0, false
	}
	rank := q * h.Count
	var low, below float64
	for _, b := range h.Buckets {
		if b.Cum >= rank && b.Cum > below {
			r = Range{low, b.LE}
			value = low + (b.LE-low)*(rank-below)/(b.Cum-below)
			return r, value, r.bounded()
		}
		low, below = b.LE, max(b.Cum, below)
	}
	return Range{low, math.Inf(1)}, 0, false
}

// Max returns the bound of the last bucket that holds a sample.
func (h Histogram) Max() float64 {
	var bound, below float64
	for _, b := range h.Buckets {
		if b.Cum > below {
			bound, below = b.LE, b.Cum
		}
	}
	return bound
}

// AtMost returns the share of samples at or below a bound that must be a bucket's.
func (h Histogram) AtMost(bound float64) float64 {
	for _, b := range h.Buckets {
		if b.LE >= bound && h.Count > 0 {
			return b.Cum / h.Count
		}
	}
	return 0
}
