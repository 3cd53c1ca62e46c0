package sampling

import (
	"slices"
	"testing"

	"waybill/kernels"
)

// TestDrawSaysWhatSampleWouldDo checks the fields that depend on the state: the draw's
// number, the banned stop tokens and the tokens seen. The device's own test compares
// the tokens that come of it with Sample's.
func TestDrawSaysWhatSampleWouldDo(t *testing.T) {
	p := params(t, 100, func(o *Options) {
		o.Temperature, o.TopK, o.TopP, o.MinP, o.Seed = 0.5, 20, 0.9, 0.1, 7
		o.RepetitionPenalty, o.MinTokens, o.StopIDs = 1.5, 2, []int32{9, 3, 9}
		o.LogitBias = []Bias{{ID: 4, Value: 1000}}
	})
	s := NewState(p, []int32{5, 5, 6})
	for n := range 3 {
		d, ok := p.Draw(s, 0)
		if !ok || !d.On || d.Scale != 2 || d.TopK != 20 || d.TopP != 0.9 || d.MinP != 0.1 || d.Logprobs != NoLogprobs || d.Repetition != 1.5 {
			t.Fatalf("draw %d: %+v, %v", n, d, ok)
		}
		if d.Uniform != uniform(7, n) {
			t.Errorf("draw %d takes %v of its seed, want %v", n, d.Uniform, uniform(7, n))
		}
		if want := [][]int32{{3, 9}, {3, 9}, nil}[n]; !slices.Equal(d.Banned, want) {
			t.Errorf("draw %d: banned %v, want %v", n, d.Banned, want)
		}
		if !slices.Equal(d.Bias, []kernels.Bias{{ID: 4, Value: 100}}) {
			t.Errorf("draw %d: biases %v", n, d.Bias)
		}
		if want := []kernels.Seen{{ID: 5}, {ID: 6}, {ID: 8, Count: int32(n)}}[:2+min(n, 1)]; !slices.Equal(d.Seen, want) {
			t.Errorf("draw %d: seen %v, want %v", n, d.Seen, want)
		}
		s.Append(8)
	}
	if d, ok := params(t, 100, func(o *Options) { o.Temperature = 0 }).Draw(&State{}, 0); !ok || d.Scale != 0 {
		t.Errorf("greedy: %+v, %v", d, ok)
	}
}

// TestDrawLeavesMasksToTheHost names what a device is not told.
func TestDrawLeavesMasksToTheHost(t *testing.T) {
	twice := func(o *Options) { o.LogitBias = []Bias{{ID: 4, Value: 1}, {ID: 4, Value: 2}} }
	allowed := func(o *Options) { o.AllowedIDs = []int32{1, 2} }
	for name, edit := range map[string]func(o *Options){"two biases of one token": twice, "allowed ids": allowed} {
		if _, ok := params(t, 100, edit).Draw(&State{}, 0); ok {
			t.Errorf("%s: a device is to draw", name)
		}
	}
	if _, ok := params(t, 100, func(*Options) {}).Draw(&State{Mask: []uint64{1}}, 0); ok {
		t.Error("a mask: a device is to draw")
	}
}
