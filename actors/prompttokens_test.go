package actors

import (
	"testing"

	"waybill/actors/waybill"
)

// counter returns the sum of a counter's series.
func (e *testEngine) counter(name string) int {
	sum := 0.0
	all, err := e.Gatherer().Gather()
	if err != nil {
		e.t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
			return int(sum)
		}
	}
	e.t.Fatalf("no counter %s", name)
	return 0
}

func TestPromptOfARequestAbortedInTheQueueIsNotCounted(t *testing.T) {
	g := newGate("step")
	cfg := testConfig()
	cfg.Fault, cfg.MaxSeqs = g.hook, 1
	e := startEngine(t, cfg)
	t.Cleanup(g.release)
	g.held.Store(true)
	first := e.request(longIDs(50), 3)
	served := make(chan error, 1)
	go func() {
		_, err := e.serve(first, &testConn{})
		served <- err
	}()
	g.arrive(t)
	victim := e.request(longIDs(300), 5)
	w := e.Submit(victim)
	eventually(t, "it is queued", func() bool { return victim.Sequences()[0].Bill.At(waybill.Queued) != 0 })
	e.Abort(victim)
	_ = w.First()
	victim.ResponseDone(e.Engine)
	g.release()
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	e.quiet()
	eventually(t, "both are booked", func() bool { return e.success(waybill.Abort) == 1 && e.success(waybill.Length) == 1 })
	for _, name := range []string{"vllm:prompt_tokens_total", "vllm:prompt_tokens_by_source_total", "vllm:prefix_cache_queries_total"} {
		if got := e.counter(name); got != 50 {
			t.Errorf("%s is %d, want the first request's 50", name, got)
		}
	}
}
