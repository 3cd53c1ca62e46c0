package ttft

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"waybill/cmd/ttft/exposition"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (regenerate with -update and review):\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

// dumpLines returns n lines whose phases rise by 0.1 ms from line to line, with
// extra ms in one phase.
func dumpLines(n int, phase string, extra float64) string {
	var b strings.Builder
	for i := range n {
		v := map[string]float64{"intake": 0.2, "queued": 3, "prefill": 20, "egress": 0.1, "decode": 200, "tail": 0.2}
		for p := range v {
			v[p] += 0.1 * float64(i)
		}
		v[phase] += extra
		fmt.Fprintf(&b, "TTFTSPLIT rid=r-%d intake=%.3f queued=%.3f prefill=%.3f decode=%.3f e2e=%.3f egress=%.3f ttft=%.3f tail=%.3f prompt=9 cached=0 out=5 steps_waited=1 reason=length\n",
			i, v["intake"], v["queued"], v["prefill"], v["decode"], v["intake"]+v["queued"]+v["prefill"]+v["decode"]+v["tail"],
			v["egress"], v["intake"]+v["queued"]+v["prefill"]+v["egress"], v["tail"])
	}
	return b.String()
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	f := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(f, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return f
}

func source(t *testing.T, arg string) []*Level {
	t.Helper()
	l, err := Source(t.Context(), arg, Options{Interval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// histogram is the exposition of n samples of mean ms in a histogram with vLLM's
// first bounds.
func histogram(name, labels string, n int, mean float64) string {
	with := func(le string) string {
		if labels == "" {
			return `{le="` + le + `"}`
		}
		return "{" + labels + `,le="` + le + `"}`
	}
	rest := ""
	if labels != "" {
		rest = "{" + labels + "}"
	}
	in := func(le float64) int {
		if mean <= le*1e3 {
			return n
		}
		return 0
	}
	return fmt.Sprintf("%[1]s_bucket%[2]s %[3]d\n%[1]s_bucket%[4]s %[5]d\n%[1]s_bucket%[6]s %[7]d\n%[1]s_sum%[8]s %[9]g\n%[1]s_count%[8]s %[7]d\n",
		name, with("0.3"), in(0.3), with("0.5"), in(0.5), with("+Inf"), n, rest, float64(n)*mean/1e3)
}

// vllm is a scrape of a server that exports what vLLM does.
func vllm(n int, ttft, queue, prefill float64) string {
	var b strings.Builder
	for name, v := range map[string]float64{"time_to_first_token_seconds": ttft, "request_queue_time_seconds": queue, "request_prefill_time_seconds": prefill, "request_decode_time_seconds": 400, "e2e_request_latency_seconds": ttft + 400} {
		b.WriteString("# TYPE vllm:" + name + " histogram\n" + histogram("vllm:"+name, `engine="0"`, n, v))
	}
	return b.String()
}

// own is a scrape of a waybill with the given phases and extra ms in one.
func own(n int, phase string, extra float64) string {
	v := map[string]float64{"receive": 0.1, "decode_json": 0.1, "reserve": 0.1, "render": 0.1, "tokenize": 0.5, "hop": 0.1, "queued": 3, "prefill": 20, "egress": 1, "decode": 100, "tail": 1}
	v[phase] += extra
	for _, p := range intakeParts {
		v["intake"] += v[p]
	}
	v["ttft"] = v["intake"] + v["queued"] + v["prefill"] + v["egress"]
	v["e2e"] = v["intake"] + v["queued"] + v["prefill"] + v["decode"] + v["tail"]
	var b strings.Builder
	b.WriteString("# TYPE " + phaseMetric + " histogram\n")
	for p, mean := range v {
		b.WriteString(histogram(phaseMetric, `phase="`+p+`"`, n, mean))
	}
	return b.String()
}

func TestLevelsAndTheirGrowth(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"run-c8.log": dumpLines(20, "queued", 10), "run-c1.log": "loading\n" + dumpLines(10, "", 0),
		"run-c2.log": dumpLines(10, "prefill", 4) + "TTFTSPLIT rid=x intake=1.000 e2e=9.000 prompt=1 cached=0 out=0 steps_waited=0 reason=abort\nTTFTSPLIT rid=\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	levels, err := Sources(t.Context(), []string{dir}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(levels) != 3 || levels[0].Name != "c=1" || levels[1].Concurrency != 2 || levels[2].Name != "c=8" {
		t.Fatalf("levels %s", levelNames(levels))
	}
	// 10 lines rise by 0.1 ms each: the mean is 0.45 above the first, p50 too, p99
	// interpolates between the last two: 0.891 above.
	d := levels[0].TTFT["prefill"]
	for what, pair := range map[string][2]float64{"mean": {d.Mean, 20.45}, "p50": {d.P50.Value, 20.45}, "p99": {d.P99.Value, 20.891}} {
		if diff := pair[0] - pair[1]; diff > 1e-9 || diff < -1e-9 {
			t.Errorf("%s of prefill is %g, want %g", what, pair[0], pair[1])
		}
	}
	var b bytes.Buffer
	Print(&b, levels)
	golden(t, "levels.txt", b.Bytes())
}

func TestLabelsAndStdin(t *testing.T) {
	f := file(t, "a.log", dumpLines(3, "", 0))
	o := Options{Labels: []string{"c=4", "16"}, Stdin: strings.NewReader(dumpLines(2, "", 0))}
	levels, err := Sources(t.Context(), []string{"-", f}, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(levels) != 2 || levels[0].Name != "c=4" || levels[0].Requests != 2 || levels[1].Name != "c=16" || levels[1].Concurrency != 16 {
		t.Errorf("levels %s", levelNames(levels))
	}
	for name, want := range map[string]int{"c8": 8, "c=32.log": 32, "x_conc16.txt": 16, "concurrency-2.log": 2, "abc8.log": 0, "gcc12.log": 0, "plain": 0} {
		if _, n := levelName("", name); n != want {
			t.Errorf("%s: level %d, want %d", name, n, want)
		}
	}
}

func TestAFileWithoutLinesIsAnError(t *testing.T) {
	if _, err := Sources(t.Context(), []string{file(t, "x.log", "nothing\n")}, Options{}); err == nil || !strings.Contains(err.Error(), "VT_TTFT_DUMP=1") {
		t.Errorf("error %v", err)
	}
}

func TestScrapesAndDumpLinesAreLevelsBesideEachOther(t *testing.T) {
	before, after, lines := file(t, "m0", own(10, "", 0)), file(t, "m1", own(30, "queued", 20)), file(t, "c2.log", dumpLines(5, "", 0))
	levels, err := Sources(t.Context(), []string{before + "," + after, lines}, Options{Labels: []string{"c=8", ""}})
	if err != nil {
		t.Fatal(err)
	}
	// 10 of 3 ms, then 30 of 23 ms in all: 33 ms each between the two.
	if len(levels) != 2 || levels[0].Name != "c=2" || levels[1].Name != "c=8" || levels[1].Requests != 20 || math.Abs(levels[1].TTFT["queued"].Mean-33) > 1e-9 {
		t.Errorf("levels %s, the scrapes' %+v", levelNames(levels), levels[len(levels)-1])
	}
	// One scrape of each run, and one from a pipe; that they count from the start is said.
	levels, err = Sources(t.Context(), []string{file(t, "c1.prom", own(10, "", 0)), "-"},
		Options{Labels: []string{"", "c=4"}, Stdin: strings.NewReader(own(7, "", 0))})
	if err != nil || len(levels) != 2 || levels[0].Name != "c=1" || levels[1].Name != "c=4" || levels[1].Requests != 7 {
		t.Fatalf("levels %s, error %v", levelNames(levels), err)
	}
	if len(levels[0].Notes) != 1 || !strings.Contains(levels[0].Notes[0], "before,after") {
		t.Errorf("notes %q", levels[0].Notes)
	}
	for arg, want := range map[string]string{before + "," + lines: "can't be put together", before + "," + after + "," + after: "3 scrapes", before + ",nowhere": "nowhere"} {
		if _, err := Sources(t.Context(), []string{arg}, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", arg, err, want)
		}
	}
}

func TestAFileMayHaveACommaInItsName(t *testing.T) {
	if l := source(t, file(t, "a,c4.log", dumpLines(3, "", 0))); len(l) != 1 || l[0].Name != "c=4" {
		t.Errorf("levels %s", levelNames(l))
	}
}

func TestCollectedAnswersHaveNoTTFT(t *testing.T) {
	l := source(t, file(t, "x", "TTFTSPLIT rid=a intake=1.000 queued=2.000 prefill=3.000 decode=4.000 e2e=11.000 tail=1.000 reason=stop\n"))[0]
	if l.TTFT.has("ttft") || !l.TTFT.has("prefill") || !l.E2E.has("e2e") || len(l.Notes) != 1 {
		t.Errorf("level %+v", l)
	}
}

func TestVLLMsHistogramsAreNotOverread(t *testing.T) {
	l := source(t, file(t, "before", vllm(10, 400, 20, 330))+","+file(t, "after", vllm(30, 400, 20, 330)))
	l[0].Name = "server"
	var b bytes.Buffer
	Print(&b, l)
	golden(t, "vllm.txt", b.Bytes())
}

func TestAServerWithoutTTFTIsRefused(t *testing.T) {
	s, err := exposition.Parse(strings.NewReader("# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := FromScrapes("x", s, s); err == nil || !strings.Contains(err.Error(), "nothing can be attributed") {
		t.Errorf("error %v", err)
	}
	if s, err = exposition.Parse(strings.NewReader(vllm(5, 1, 1, 1))); err != nil {
		t.Fatal(err)
	}
	if _, err := FromScrapes("x", s, s); err == nil || !strings.Contains(err.Error(), "no request got its first token") {
		t.Errorf("error %v", err)
	}
}

func TestScrapeCountsWhatHappenedBetween(t *testing.T) {
	// 10 requests with a delay of 100 ms, then 10 more without: a mean of 50.
	texts := []string{own(10, "queued", 100), own(20, "queued", 50)}
	n := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer k" {
			w.WriteHeader(401)
			return
		}
		_, _ = w.Write([]byte(texts[min(n, 1)]))
		n++
	}))
	defer srv.Close()
	l, err := Scrape(t.Context(), srv.URL, Options{Interval: time.Millisecond, Header: map[string]string{"Authorization": "Bearer k"}})
	if err != nil {
		t.Fatal(err)
	}
	if l.Requests != 10 || l.TTFT["queued"].Mean < 2.999 || l.TTFT["queued"].Mean > 3.001 {
		t.Errorf("%d requests, queued %g ms; want 10, 3", l.Requests, l.TTFT["queued"].Mean)
	}
	if _, err := Scrape(t.Context(), srv.URL, Options{}); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("error %v, want 401", err)
	}
}
