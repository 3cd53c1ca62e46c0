package gpureport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"waybill/cmd/ttft/exposition"
)

// Gap is the device's idle time between two steps of a server, by its own clock.
type Gap struct {
	Shape      string  `json:"shape"`
	Streams    int     `json:"streams"`
	Membership string  `json:"membership"` // same or changed
	Steps      float64 `json:"steps"`
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	Mean       float64 `json:"mean_us"`
	// Host is what the host took of it, from seeing the tokens to the return of the call that
	// launched the next step, or to letting it go on if it was queued ahead; 0: no such step
	// was replayed.
	Host    float64 `json:"host_p50_us"`
	HostP99 float64 `json:"host_p99_us"`
}

// Intake is what a server did before and after the engine, of an open loop of text prompts.
type Intake struct {
	Shape  string  `json:"shape"`
	Rate   float64 `json:"requests_per_s"`
	N      int     `json:"n"`
	Prompt int     `json:"median_prompt_tokens"`
	P50    float64 `json:"intake_p50_ms"`
	P99    float64 `json:"intake_p99_ms"`
	Max    float64 `json:"intake_max_ms"`
	Egress float64 `json:"egress_p50_ms"`
	Late   float64 `json:"egress_p99_ms"`
}

// Loading is the start of a server on weights in files.
type Loading struct {
	Model string  `json:"model"`
	Bytes int64   `json:"bytes"`
	Ready int64   `json:"start_to_ready_ms"`
	Load  float64 `json:"gb_per_s"`            // while weights were loaded
	Cache float64 `json:"page_cache_gb_per_s"` // reading the same files into memory, one thread
}

// gapProbes is how many newcomers change the members of the steps.
const gapProbes = 150

// gaps measures idle times beside 1, 8 and 32 streams, and keeps what the console shows meanwhile.
func gaps(ctx context.Context, o *Options, r *Report) error {
	return o.each(ctx, r, func(shape string, s *server) error {
		for _, streams := range []int{1, 8, 32} {
			before, err := exposition.Fetch(ctx, s.url, nil)
			if err != nil {
				return err
			}
			watched := make(chan error, 1)
			go func() { watched <- o.watch(ctx, s, fmt.Sprintf("console-%s-%d.json", shape, streams)) }()
			n := strconv.Itoa(streams)
			_, err = o.bench(ctx, s, shape, n+" streams", "--probe", "phase", "--probe-streams", n, "--probe-count", strconv.Itoa(gapProbes),
				"--probe-idle", "5", "--probe-input-len", "64", "--probe-stream-len", "4096")
			if err = errors.Join(err, <-watched); err != nil {
				return err
			}
			after, err := exposition.Fetch(ctx, s.url, nil)
			if err != nil {
				return err
			}
			for _, members := range []string{"same", "changed"} {
				since := func(name string) (exposition.Histogram, error) {
					h, ok := after.Histogram(name, "membership", members)
					if !ok {
						return h, fmt.Errorf("no %s in /metrics", name)
					}
					was, _ := before.Histogram(name, "membership", members)
					return h.Since(was), nil
				}
				device, err := since("waybill:device_idle_seconds")
				if err != nil {
					return err
				}
				host, err := since("waybill:device_idle_host_seconds")
				if err != nil {
					return err
				}
				us := func(h exposition.Histogram, q float64) float64 {
					_, v, _ := h.Quantile(q)
					return v * 1e6
				}
				r.Gaps = append(r.Gaps, Gap{
					Shape: shape, Streams: streams, Membership: members, Steps: device.Count, Mean: device.Mean() * 1e6,
					P50: us(device, .5), P99: us(device, .99), Host: us(host, .5), HostP99: us(host, .99),
				})
			}
		}
		return nil
	})
}

// each runs a server of each shape, one after the other.
func (o *Options) each(ctx context.Context, r *Report, f func(shape string, s *server) error) error {
	for _, shape := range shapes {
		s, err := o.start(ctx, r, shape)
		if err != nil {
			return err
		}
		err = f(shape, s)
		s.stop()
		if err != nil {
			return fmt.Errorf("%s: %w", shape, err)
		}
	}
	return nil
}

// watch keeps an event of the console of a server whose streams decode, and what `waybill top` shows.
func (o *Options) watch(ctx context.Context, s *server, file string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/console/api/events", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("console: %w", err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 16<<20)
	for n := 0; lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			if !decoding.MatchString(data) {
				continue
			}
			if n++; n == 2 {
				if err := os.WriteFile(filepath.Join(o.Dir, file), []byte(data+"\n"), 0o644); err != nil {
					return err
				}
				out, err := exec.CommandContext(ctx, filepath.Join(o.Folder, "waybill-cuda"), "top", "--once", s.url).CombinedOutput()
				if err != nil {
					return fmt.Errorf("top: %w: %s", err, out)
				}
				return os.WriteFile(filepath.Join(o.Dir, strings.TrimSuffix(file, ".json")+".txt"), out, 0o644)
			}
		}
	}
	return fmt.Errorf("console: the events ended: %w", errors.Join(lines.Err(), io.ErrUnexpectedEOF))
}

// decoding is in an event of a server that has decoded in the interval.
var decoding = regexp.MustCompile(`"decode_rows":[1-9]`)

// intakeShare is the load at which intake is measured, of what 32 clients got.
const intakeShare = 0.6

// intake sends text prompts of 1024 tokens at intakeShare of the server's capacity.
func intake(ctx context.Context, o *Options, r *Report) error {
	return o.each(ctx, r, func(shape string, s *server) error {
		load := []string{"--dataset-name", "random", "--random-input-len", "1024", "--random-output-len", "128"}
		most, err := o.bench(ctx, s, shape, "capacity", append(load, "--max-concurrency", "32", "--num-prompts", "96", "--num-warmups", "4", "--seed", "3")...)
		if err != nil {
			return err
		}
		capacity, _ := most.Result["request_throughput"].(float64)
		if capacity <= 0 {
			return errors.New("no request_throughput in the load generator's result")
		}
		in := Intake{Shape: shape, Rate: intakeShare * capacity}
		from, err := os.Stat(s.dump)
		if err != nil {
			return err
		}
		// Half a minute at most, a hundred at least.
		n := max(100, min(300, int(in.Rate*10)))
		if _, err := o.bench(ctx, s, shape, "open loop", append(load, "--request-rate", fmt.Sprintf("%.3f", in.Rate), "--num-prompts", strconv.Itoa(n), "--seed", "4")...); err != nil {
			return err
		}
		dump, err := os.ReadFile(s.dump)
		if err != nil {
			return err
		}
		in.fill(string(dump[from.Size():]))
		r.Intake = append(r.Intake, in)
		return nil
	})
}

var splitLine = regexp.MustCompile(`(?m)^TTFTSPLIT .*\bintake=([\d.]+) .*\begress=([\d.]+) .*\bprompt=(\d+) .*\bout=(\d+) `)

// fill reads the dump lines of whole requests.
func (in *Intake) fill(dump string) {
	var took, egress, prompt []float64
	for _, m := range splitLine.FindAllStringSubmatch(dump, -1) {
		if whole(m[4]) < 2 {
			continue // not of the load
		}
		took, egress, prompt = append(took, decimal(m[1])), append(egress, decimal(m[2])), append(prompt, decimal(m[3]))
	}
	in.N, in.Prompt = len(took), int(percentile(prompt, .5))
	in.P50, in.P99, in.Max = percentile(took, .5), percentile(took, .99), percentile(took, 1)
	in.Egress, in.Late = percentile(egress, .5), percentile(egress, .99)
}

// percentile returns the value at share q of the sorted values, 0 of none.
func percentile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return v[int(math.Ceil(q*float64(len(v)-1)))]
}

// loading starts servers on the models that parity has saved.
func loading(ctx context.Context, o *Options, r *Report) error {
	folders, err := filepath.Glob(filepath.Join(o.parityFolder(), "*", "model.safetensors"))
	if err != nil {
		return err
	}
	if len(folders) == 0 {
		r.Skipped["loading"] = "parity has saved no models"
		return nil
	}
	for _, file := range folders {
		l := Loading{Model: filepath.Base(filepath.Dir(file))}
		if l.Bytes, l.Cache, err = readRate(file); err != nil {
			return err
		}
		s, ready, err := o.serveFolder(ctx, filepath.Dir(file))
		if err != nil {
			return err
		}
		l.Ready = ready.Milliseconds()
		dump, err := os.ReadFile(s.dump)
		s.stop()
		if err != nil {
			return err
		}
		if m := loadedLine.FindSubmatch(dump); m != nil {
			l.Load = decimal(string(m[1]))
		}
		r.Loading = append(r.Loading, l)
	}
	return nil
}

// loadedLine is what the server says of the speed at which it loaded weights.
var loadedLine = regexp.MustCompile(`at ([\d.]+) GB/s`)

// readRate reads a file twice, so that it is in the page cache, and returns its size and the second reading's GB/s.
func readRate(file string) (size int64, rate float64, err error) {
	buf := make([]byte, 16<<20)
	for range 2 {
		f, err := os.Open(file)
		if err != nil {
			return 0, 0, err
		}
		from := time.Now()
		size = 0
		for {
			n, err := f.Read(buf)
			size += int64(n)
			if err == io.EOF {
				break
			}
			if err != nil {
				f.Close()
				return 0, 0, err
			}
		}
		rate = float64(size) / 1e9 / time.Since(from).Seconds()
		f.Close()
	}
	return size, rate, nil
}
