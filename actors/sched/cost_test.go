package sched

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Where a decode row costs ten times what a prompt's token does and their number
// changes, chunks still get what fits into their time: the rows must not make the
// tokens look dear. With one coefficient for both they got 0.75 of it.
func TestDecodeRowsDoNotMakePromptTokensLookDear(t *testing.T) {
	const perRow, perToken, constant = 5.0, 0.5, 2.0 // ms
	rng := rand.New(rand.NewPCG(1, 2))
	c := newCostModel()
	rows, taken, fit := 4, 0, 0
	for step := range 400 {
		if step%5 == 0 {
			rows = 1 + rng.IntN(6)
		}
		var l load
		for range rows {
			l.decode(200)
		}
		decode := constant + perRow*float64(rows)
		chunk := 0
		if step%4 != 0 {
			limit := c.predict(l)
			chunk = max(1, c.tokensWithin(l, 0, 512, 2*limit))
			l.add(0, chunk)
			if step > 100 {
				taken += chunk
				fit += int(decode / perToken)
			}
		}
		noise := 0.8 + 0.4*rng.Float64()
		c.learn(l, time.Duration(noise*(decode+perToken*float64(chunk))*float64(time.Millisecond)))
	}
	if share := float64(taken) / float64(fit); share < 0.85 || share > 1.2 {
		t.Errorf("chunks took %.2f of the tokens that fit into one decode step", share)
	}
}

// What a chunk leaves off for steps that are late covers nine in ten of them, follows the
// machine when it becomes quiet, and knows nothing of steps that only decode or only prefill.
func TestLateCoversNineStepsInTen(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	c := newCostModel()
	var mixed, decode, prefill load
	mixed.decode(500)
	mixed.add(0, 200)
	decode.decode(500)
	prefill.add(0, 200)
	run := func(steps int, late float64) (covered float64) {
		for range steps {
			elapsed := 40 * time.Millisecond
			if rng.Float64() < late {
				elapsed += time.Duration(rng.IntN(15)) * time.Millisecond
			}
			if elapsed <= c.predict(mixed)+c.late {
				covered++
			}
			c.learn(mixed, elapsed)
			was := c.late
			c.learn(decode, 20*time.Millisecond)
			c.learn(prefill, 20*time.Millisecond)
			if c.late != was {
				t.Fatal("a step without streams or without prefill changed it")
			}
		}
		return covered / float64(steps)
	}
	run(500, 0.4)
	if share := run(2000, 0.4); share < 0.87 || share > 0.93 {
		t.Errorf("%.0f %% of the steps ended within it, want 90", 100*share)
	}
	// One step's rise, nine thousandths, and what precedes it.
	if run(2000, 0); c.late > 2*9*40*time.Millisecond/lateStep {
		t.Errorf("%v are left off although no step is late", c.late)
	}
}

// What steps are late by is left off chunks that streams wait for, up to a part of them, and off
// no others.
func TestLateIsLeftOffChunksBesideStreams(t *testing.T) {
	c, err := New(Config{BlockSize: 16, NumBlocks: 16, MaxSeqs: 4, MaxBatchedTokens: 64, MaxModelLen: 128, PrefillChunk: 40 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	p := planner{Core: c, plan: &Plan{}}
	for late, off := range map[time.Duration]time.Duration{
		0: 0, 6 * time.Millisecond: 6 * time.Millisecond, time.Second: 10 * time.Millisecond,
	} {
		c.cost.late = late
		p.plan.DecodeRows, p.load = 1, load{}
		p.load.decode(100)
		if got, want := p.prefillLimit(), c.cost.predict(p.load)+40*time.Millisecond-off; got != want {
			t.Errorf("late by %v: the step may take %v, want %v", late, got, want)
		}
		p.plan.DecodeRows, p.load = 0, load{}
		if got := p.prefillLimit(); got != IdleChunk {
			t.Errorf("late by %v: a step without streams may take %v, want %v", late, got, IdleChunk)
		}
	}
}
