package actors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"waybill/actors/waybill"
	"waybill/kernels"
	"waybill/kernels/cpu"
	"waybill/model"
	"waybill/model/tokenizer"
)

// tinyFolder holds a random-weight model whose greedy tokens are known.
const tinyFolder = "../model/testdata/tiny/qwen3"

// golden is a prompt of the tiny model and the tokens that must follow.
type golden struct {
	IDs    []int32 `json:"ids"`
	Tokens []int32 `json:"tokens"`
}

func goldens(t testing.TB) []golden {
	t.Helper()
	b, err := os.ReadFile(tinyFolder + "/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Prompts []golden `json:"prompts"`
	}
	if err := json.Unmarshal(b, &f); err != nil || len(f.Prompts) == 0 {
		t.Fatalf("golden.json: %v, %d prompts", err, len(f.Prompts))
	}
	return f.Prompts
}

// testConfig serves the tiny model with small limits.
func testConfig() Config {
	return Config{
		ModelName: "tiny", MaxModelLen: 1024, MaxSeqs: 8, MaxBatchedTokens: 64, BlockSize: 16, NumBlocks: 256,
		PrefixCache: true, KVType: kernels.F32, MaxQueuedReqs: 64, Intakes: 2, Detokenizers: 2, OnCPU: true,
		OnFatal: func(err error) { panic(err) },
	}
}

// testEngine is an engine on the tiny model.
type testEngine struct {
	*Engine
	t testing.TB
}

func startEngine(t testing.TB, cfg Config) *testEngine {
	t.Helper()
	return startEngineOn(t, cfg, func(b kernels.Backend) kernels.Backend { return b })
}

// startEngineOn serves on what wrap makes of the CPU.
func startEngineOn(t testing.TB, cfg Config, wrap func(kernels.Backend) kernels.Backend) *testEngine {
	t.Helper()
	b, err := cpu.New(cpu.Options{Threads: 1, Math: cpu.F32})
	if err != nil {
		t.Fatal(err)
	}
	src, err := model.Open(tinyFolder)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.FromHF(src.TokenizerJSON, src.TokenizerConfigJSON)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(src, wrap(b), model.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(cfg, m, tok)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		b.Close()
	})
	return &testEngine{e, t}
}

// textEncoder writes deltas as lines.
type textEncoder struct{}

func (textEncoder) AppendDelta(dst []byte, d *Delta) []byte {
	return fmt.Appendf(dst, "%d %v %s\n", d.Index, d.IDs, d.Finish)
}
func (textEncoder) AppendEnd(dst []byte, u Usage, _ []*Sequence) []byte {
	return fmt.Appendf(dst, "end %d\n", u.Completion)
}
func (textEncoder) AppendFailure(dst []byte, f *Failure) []byte {
	return fmt.Appendf(dst, "failure %d\n", f.Status)
}
func (textEncoder) AppendKeepAlive(dst []byte) []byte { return append(dst, ": keep-alive\n"...) }

// testConn is the client's side: it stamps as a connection does.
type testConn struct {
	bytes.Buffer
	onWrite func(n int) error
	writes  int
}

func (c *testConn) Sent(firsts, lasts []*waybill.Waybill) {
	for _, b := range firsts {
		b.Stamp(waybill.FirstByte, waybill.Now())
	}
	for _, b := range lasts {
		b.Stamp(waybill.LastByte, waybill.Now())
	}
}
func (c *testConn) Write(p []byte) (int, error) {
	c.writes++
	if c.onWrite != nil {
		if err := c.onWrite(c.writes); err != nil {
			return 0, err
		}
	}
	return c.Buffer.Write(p)
}

// request makes a greedy request for ids.
func (e *testEngine) request(ids []int32, maxTokens int) *Request {
	proto := &waybill.Waybill{}
	for m := waybill.Arrived; m <= waybill.Reserved; m++ {
		proto.Stamp(m, waybill.Now())
	}
	o := DefaultSampling()
	o.Temperature = 0
	o.Logprobs = NoLogprobs
	p, err := e.Reserve(1, len(ids))
	if err != nil {
		e.t.Error(err)
	}
	return &Request{
		RID: "test", Prompts: []Prompt{{IDs: ids}}, N: 1, Sampling: o, MaxTokens: maxTokens, IgnoreEOS: true,
		Stream: true, Encoder: textEncoder{}, Proto: proto, Places: p,
	}
}

// serve runs a request to its end and returns its tokens.
func (e *testEngine) serve(r *Request, c *testConn) ([]int32, error) {
	return e.finish(r, e.Submit(r), c)
}

// finish reads a submitted request's answer to its end.
func (e *testEngine) finish(r *Request, w *Writer, c *testConn) ([]int32, error) {
	defer r.ResponseDone(e.Engine)
	if err := w.First(); err != nil {
		return nil, err
	}
	if r.Stream {
		if _, err := w.WriteTo(c, c); err != nil {
			return nil, err
		}
		var ids []int32
		for _, l := range strings.Split(c.String(), "\n") {
			var i int
			if a, b := strings.Index(l, "["), strings.Index(l, "]"); a > 0 && b > a {
				for _, f := range strings.Fields(l[a+1 : b]) {
					fmt.Sscan(f, &i)
					ids = append(ids, int32(i))
				}
			}
		}
		return ids, nil
	}
	ch, _ := w.Choices()
	ch[0].Bill.Stamp(waybill.LastByte, waybill.Now()) // as the connection does
	return ch[0].IDs, nil
}

func TestGreedyTokensPassTheActorsUnchanged(t *testing.T) {
	e := startEngine(t, testConfig())
	var wg sync.WaitGroup
	for round := range 2 {
		for i, g := range goldens(t) {
			wg.Go(func() {
				r := e.request(g.IDs, len(g.Tokens))
				r.Stream = (i+round)%2 == 0
				got, err := e.serve(r, &testConn{})
				if err != nil || fmt.Sprint(got) != fmt.Sprint(g.Tokens) {
					t.Errorf("prompt %d: %v\n got %v\nwant %v", i, err, got, g.Tokens)
				}
			})
		}
		wg.Wait()
	}
	e.quiet()
}

// quiet waits until nothing is under way and checks that all was given back.
func (e *testEngine) quiet() {
	e.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		used, _ := e.Load()
		if used == 0 && e.registry.count() == 0 {
			break
		}
		if time.Now().After(end) {
			e.t.Fatalf("%d places in use, %d sequences registered after 10 s", used, e.registry.count())
		}
	}
	if n := e.places.tokens.Load(); n != 0 {
		e.t.Errorf("%d queued tokens held at rest", n)
	}
}
