package gpureport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// shapes are the bundle's model folders that are served.
var shapes = []string{"Qwen3-0.6B", "Qwen3-8B"}

// loads are the runs of each shape. They are the rows of docs/GPU.md.
var loads = []struct {
	what                         string
	in, out, atOnce, n, warmings int
}{
	{"1024 in, 128 out, 1 client", 1024, 128, 1, 12, 2},
	{"1024 in, 128 out, 32 clients", 1024, 128, 32, 192, 32},
	{"32 in, 256 out, 1 client", 32, 256, 1, 3, 0},
	{"32 in, 256 out, 32 clients", 32, 256, 32, 64, 0},
	{"64 in, 2 out, 1 client", 64, 2, 1, 40, 0},
}

// probes is how many newcomers are sent beside each number of streams.
const probes = 500

// server is a waybill on made-up weights.
type server struct {
	cmd       *exec.Cmd
	url, dump string
	done      chan error
}

// start runs a server of a shape on made-up weights and waits until it is ready.
func (o *Options) start(ctx context.Context, r *Report, shape string) (*server, error) {
	s, ready, err := o.serveFolder(ctx, filepath.Join(o.Folder, "shapes", shape), "--load-format", "dummy", "--no-enable-prefix-caching")
	if err != nil {
		return nil, err
	}
	r.Ready[shape] = ready.Milliseconds()
	return s, nil
}

// serveFolder runs a server of a model folder and waits until it is ready.
func (o *Options) serveFolder(ctx context.Context, folder string, flags ...string) (*server, time.Duration, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, 0, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	name := filepath.Base(folder)
	s := &server{url: fmt.Sprintf("http://127.0.0.1:%d", port), dump: filepath.Join(o.Dir, "serve-"+name+".log"), done: make(chan error, 1)}
	log, err := os.Create(s.dump)
	if err != nil {
		return nil, 0, err
	}
	defer log.Close() // the process has its own
	args := append([]string{"serve", folder, "--device", "cuda", "--log-format", "none", "--port", strconv.Itoa(port)}, flags...)
	s.cmd = exec.CommandContext(ctx, filepath.Join(o.Folder, "waybill-cuda"), args...)
	s.cmd.Env = append(os.Environ(), "VT_TTFT_DUMP=1")
	s.cmd.Stderr = log
	from := time.Now()
	if err := s.cmd.Start(); err != nil {
		return nil, 0, err
	}
	go func() { s.done <- s.cmd.Wait() }()
	for {
		select {
		case err := <-s.done:
			return nil, 0, fmt.Errorf("%s ended before it was ready, see %s: %w", name, s.dump, errors.Join(err, ctx.Err()))
		case <-time.After(10 * time.Millisecond):
		}
		if resp, err := http.Get(s.url + "/ready"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return s, time.Since(from), nil
			}
		}
	}
}

// stop ends the server.
func (s *server) stop() {
	// An error means that it has ended already, which Wait tells too.
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	<-s.done
}

// bench runs the load generator and reads its result.
func (o *Options) bench(ctx context.Context, s *server, shape, what string, args ...string) (Load, error) {
	const file = "bench.json"
	defer os.Remove(filepath.Join(o.Dir, file))
	args = append([]string{"bench", "--base-url", s.url, "--disable-tqdm", "--save-result", "--result-dir", o.Dir, "--result-filename", file}, args...)
	l := Load{Shape: shape, What: what}
	if out, err := exec.CommandContext(ctx, filepath.Join(o.Folder, "waybill-cuda"), args...).CombinedOutput(); err != nil {
		return l, fmt.Errorf("%s, %s: %w: %s", shape, what, err, out)
	}
	data, err := os.ReadFile(filepath.Join(o.Dir, file))
	if err != nil {
		return l, err
	}
	return l, json.Unmarshal(data, &l.Result)
}

func serve(ctx context.Context, o *Options, r *Report) error {
	for _, shape := range shapes {
		s, err := o.start(ctx, r, shape)
		if err != nil {
			return err
		}
		for _, l := range loads {
			load, err := o.bench(ctx, s, shape, l.what, "--dataset-name", "random", "--metric-percentiles", "50,90,99", "--seed", "7",
				"--random-input-len", strconv.Itoa(l.in), "--random-output-len", strconv.Itoa(l.out), "--max-concurrency", strconv.Itoa(l.atOnce),
				"--num-prompts", strconv.Itoa(l.n), "--num-warmups", strconv.Itoa(l.warmings))
			if err != nil {
				s.stop()
				return err
			}
			r.Loads = append(r.Loads, load)
		}
		s.stop()
	}
	return nil
}

func probe(ctx context.Context, o *Options, r *Report) error {
	const shape = "Qwen3-8B"
	for _, streams := range []int{8, 32} {
		s, err := o.start(ctx, r, shape)
		if err != nil {
			return err
		}
		n := strconv.Itoa(streams)
		load, err := o.bench(ctx, s, shape, n+" streams", "--probe", "phase", "--probe-streams", n, "--probe-count", strconv.Itoa(probes),
			"--probe-idle", "40", "--probe-input-len", "64", "--probe-stream-len", "2048", "--dump-file", s.dump)
		s.stop()
		if err != nil {
			return err
		}
		r.Probes = append(r.Probes, load)
	}
	return nil
}
