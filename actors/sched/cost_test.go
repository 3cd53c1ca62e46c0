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
