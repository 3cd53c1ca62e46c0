package exposition

import (
	"context"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const before = `# HELP vllm:x_seconds Something.
# TYPE vllm:x_seconds histogram
vllm:x_seconds_bucket{engine="0",le="0.3"} 4
vllm:x_seconds_bucket{engine="0",le="0.5"} 4
vllm:x_seconds_bucket{engine="0",le="+Inf"} 4
vllm:x_seconds_sum{engine="0"} 0.4
vllm:x_seconds_count{engine="0"} 4
# TYPE waybill:p histogram
waybill:p_bucket{phase="intake",le="1"} 1
waybill:p_bucket{phase="intake",le="+Inf"} 1
waybill:p_sum{phase="intake"} 0.5
waybill:p_count{phase="intake"} 1
waybill:p_bucket{phase="queued",le="1"} 0
waybill:p_bucket{phase="queued",le="+Inf"} 2
waybill:p_sum{phase="queued"} 9
waybill:p_count{phase="queued"} 2
`

const after = `# TYPE vllm:x_seconds histogram
vllm:x_seconds_bucket{engine="0",le="0.3"} 5
vllm:x_seconds_bucket{engine="0",le="0.5"} 13
vllm:x_seconds_bucket{engine="0",le="+Inf"} 14
vllm:x_seconds_sum{engine="0"} 5.4
vllm:x_seconds_count{engine="0"} 14
`

func parse(t *testing.T, text string) *Snapshot {
	t.Helper()
	s, err := Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func hist(t *testing.T, text, name, label, value string) Histogram {
	t.Helper()
	h, ok := parse(t, text).Histogram(name, label, value)
	if !ok {
		t.Fatalf("no histogram %s{%s=%q}", name, label, value)
	}
	return h
}

func TestDifferenceOfTwoScrapes(t *testing.T) {
	h := hist(t, after, "vllm:x_seconds", "", "").Since(hist(t, before, "vllm:x_seconds", "", ""))
	if h.Count != 10 || math.Abs(h.Mean()-0.5) > 1e-12 {
		t.Fatalf("count %g, mean %g; want 10, 0.5", h.Count, h.Mean())
	}
	// 1 sample up to 0.3, 8 up to 0.5: the median is half way in the second bucket.
	r, v, ok := h.Quantile(0.5)
	if !ok || r != (Range{0.3, 0.5}) || math.Abs(v-0.4) > 1e-12 {
		t.Errorf("median in %v, value %g, ok %t; want (0.3, 0.5], 0.4", r, v, ok)
	}
	if !math.IsInf(h.Max(), 1) || h.AtMost(0.5) != 0.9 {
		t.Errorf("max %g, share up to 0.5 %g; want +Inf, 0.9", h.Max(), h.AtMost(0.5))
	}
}

func TestARestartedServersHistogramIsAllNew(t *testing.T) {
	h := hist(t, before, "vllm:x_seconds", "", "").Since(hist(t, after, "vllm:x_seconds", "", ""))
	if h.Count != 4 {
		t.Fatalf("count %g, want 4", h.Count)
	}
}

func TestQuantileInFirstOrLastBucketIsNotClaimed(t *testing.T) {
	h := hist(t, before, "vllm:x_seconds", "", "")
	if r, _, ok := h.Quantile(0.5); ok || r.High != 0.3 {
		t.Errorf("a quantile below the first bound is claimed: %v %t", r, ok)
	}
	h = hist(t, before, "waybill:p", "phase", "queued")
	if r, _, ok := h.Quantile(0.99); ok || r.Low != 1 {
		t.Errorf("a quantile above the last bound is claimed: %v %t", r, ok)
	}
	if _, _, ok := (Histogram{}).Quantile(0.5); ok {
		t.Error("a quantile of no samples is claimed")
	}
}

func TestLabelsSelectAndAnEmptyLabelSums(t *testing.T) {
	s := parse(t, before)
	if got := strings.Join(s.Labels("waybill:p", "phase"), " "); got != "intake queued" {
		t.Errorf("labels %q", got)
	}
	if h, _ := s.Histogram("waybill:p", "", ""); h.Count != 3 || h.Sum != 9.5 {
		t.Errorf("sum over phases: %+v", h)
	}
	if _, ok := s.Histogram("waybill:p", "phase", "egress"); ok {
		t.Error("a phase that is not there was found")
	}
}

func TestFetchAsksForMetricsAndReportsTheStatus(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(before))
	}))
	defer srv.Close()
	for _, path := range []string{"", "/", "/metrics"} {
		if s, err := Fetch(context.Background(), srv.URL+path, nil); err != nil || len(s.Names()) != 2 {
			t.Errorf("%q: %v", path, err)
		}
	}
	if _, err := Fetch(context.Background(), srv.URL+"/nothing", nil); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("error %v, want 404", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(before, after)
	f.Add("# TYPE a histogram\na_bucket{le=\"NaN\"} 3\na_bucket{le=\"-Inf\"} NaN\na_count -7\n", "a 1\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, err := Parse(strings.NewReader(a))
		if err != nil {
			return
		}
		y, err := Parse(strings.NewReader(b))
		if err != nil {
			y = x
		}
		for _, n := range x.Names() {
			h, ok := x.Histogram(n, "", "")
			if !ok {
				continue
			}
			g, _ := y.Histogram(n, "", "")
			d := h.Since(g)
			for i := 1; i < len(d.Buckets); i++ {
				if d.Buckets[i-1].LE > d.Buckets[i].LE {
					t.Fatalf("buckets are not sorted: %v", d.Buckets)
				}
			}
			_, _, _ = d.Quantile(0.5)
			_, _ = d.Max(), d.AtMost(1)
		}
	})
}
