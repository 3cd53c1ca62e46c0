package sched

import "time"

// terms is the number of coefficients of the cost model.
const terms = 5

// costModel predicts the length of a step from its work:
//
//	time = a·prompt tokens + b·prompt pairs + r·decode rows + d·decode pairs + c
//
// where a pair is a token and a position that it looks at. A decode row reads its
// whole context for one token, a prompt's tokens share that reading: on a CPU a
// decode pair costs 2.5 times as much, and a row several times what a prompt's token
// costs. With one coefficient for both, decode rows made prompt tokens look dear,
// chunks shrank to a few tokens, and steps of a few tokens could not show otherwise.
// It is learned from finished steps by
// exponentially weighted least squares, so it follows the machine's speed. Until it
// has seen enough steps it uses a prior that is slow rather than fast, which keeps
// first chunks short.
//
// Steps that only decode are remembered apart from the others: each kind forgets
// by its own steps only. Beside a long prompt no step only decodes for a minute, and
// all that do run are alike, so that one memory would forget what a step costs
// without prefill; it took 45 ms of constant cost for granted where 5 were true, and
// gave the prompt twice that.
type costModel struct {
	kinds [2]equations // steps with prefill, steps that only decode
	k     [terms]float64
	// late is how much longer than predicted a step with prefill beside decoding rows is in
	// one case of ten.
	late time.Duration
}

// lateStep is by what part of the predicted length late moves at each step: down by it after a
// step that was no longer than predicted and late, up by nine times as much after one that was.
// At rest, one step in ten is longer.
const lateStep = 1000

// equations are normal equations of the coefficients, scaled to milliseconds,
// hundreds of tokens, tens of rows and hundreds of thousands of pairs.
type equations struct {
	m [terms][terms]float64
	v [terms]float64
}

// decay weighs a sample by 0.97 per later step of its kind: some 30 are remembered.
const decay = 0.97

// Units of the equations: they keep the columns of like size.
const (
	tokenUnit = 1e2
	rowUnit   = 1e1
	pairUnit  = 1e5
)

// prior is 0.5 ms a prompt token and a decode row, 0.1 µs a pair and 1 ms a step.
var prior = [terms]float64{0.5 * tokenUnit, 1e-4 * pairUnit, 0.5 * rowUnit, 1e-4 * pairUnit, 1}

// load is the work of a step.
type load struct{ tokens, pairs, decodeRows, decodePairs float64 }

func newCostModel() costModel {
	c := costModel{k: prior}
	for i := range terms {
		c.kinds[0].m[i][i] = ridge
		c.kinds[0].v[i] = ridge * prior[i]
	}
	return c
}

// ridge ties the coefficients to the prior while samples are few or all alike.
const ridge = 1e-3

// loadOf returns the work of a plan.
func loadOf(p *Plan) load {
	var l load
	for i := range p.Rows {
		l.addRow(&p.Rows[i])
	}
	return l
}

// addRow counts a row.
func (l *load) addRow(r *Row) {
	if r.Start >= r.PromptLen && r.Len == 1 {
		l.decode(r.Start)
		return
	}
	l.add(r.Start, r.Len)
}

// add counts n tokens of a prompt that follow start tokens of context.
func (l *load) add(start, n int) {
	l.tokens += float64(n)
	l.pairs += float64(n) * (float64(start) + float64(n)/2)
}

// decode counts one token that follows start tokens of context.
func (l *load) decode(start int) {
	l.decodeRows++
	l.decodePairs += float64(start) + 0.5
}

func (l *load) row() [terms]float64 {
	return [terms]float64{l.tokens / tokenUnit, l.pairs / pairUnit, l.decodeRows / rowUnit, l.decodePairs / pairUnit, 1}
}

func (c *costModel) predict(l load) time.Duration {
	ms := 0.0
	for i, x := range l.row() {
		ms += c.k[i] * x
	}
	return time.Duration(ms * float64(time.Millisecond))
}

// learn takes a finished step.
func (c *costModel) learn(l load, elapsed time.Duration) {
	q := &c.kinds[0]
	if l.pairs == 0 {
		q = &c.kinds[1]
	}
	if l.tokens > 0 && l.decodeRows > 0 {
		c.learnLate(c.predict(l), elapsed)
	}
	x := l.row()
	y := float64(elapsed) / float64(time.Millisecond)
	for i := range x {
		for j := range x {
			q.m[i][j] *= decay
			q.m[i][j] += x[i] * x[j]
		}
		q.v[i] = q.v[i]*decay + x[i]*y
		q.m[i][i] += ridge * (1 - decay)
		q.v[i] += ridge * (1 - decay) * prior[i]
	}
	c.solve()
}

// learnLate takes a step with prefill beside decoding rows.
func (c *costModel) learnLate(predicted, elapsed time.Duration) {
	if by := predicted / lateStep; elapsed > predicted+c.late {
		c.late += 9 * by
	} else {
		c.late = max(0, c.late-by)
	}
}

// solve finds the coefficients, none below zero: one that would be is fixed at
// zero and the others are solved again.
func (c *costModel) solve() {
	sum := c.kinds[0]
	for i := range terms {
		for j := range terms {
			sum.m[i][j] += c.kinds[1].m[i][j]
		}
		sum.v[i] += c.kinds[1].v[i]
	}
	fixed := [terms]bool{}
	for range terms {
		k, ok := sum.solve(fixed)
		if !ok {
			return
		}
		least, at := 0.0, -1
		for i := range k {
			if k[i] < least {
				least, at = k[i], i
			}
		}
		if at < 0 {
			c.k = k
			return
		}
		fixed[at] = true
	}
}

// solve solves m·k = v by elimination with the fixed coefficients at zero.
func (q equations) solve(fixed [terms]bool) (k [terms]float64, ok bool) {
	m, v := q.m, q.v
	for i := range fixed {
		if fixed[i] {
			m[i], v[i] = [terms]float64{}, 0
			m[i][i] = 1
		}
	}
	for col := range terms {
		p := col
		for r := col + 1; r < terms; r++ {
			if abs(m[r][col]) > abs(m[p][col]) {
				p = r
			}
		}
		if abs(m[p][col]) < 1e-12 {
			return k, false
		}
		m[col], m[p] = m[p], m[col]
		v[col], v[p] = v[p], v[col]
		for r := col + 1; r < terms; r++ {
			f := m[r][col] / m[col][col]
			for j := col; j < terms; j++ {
				m[r][j] -= f * m[col][j]
			}
			v[r] -= f * v[col]
		}
	}
	for i := terms - 1; i >= 0; i-- {
		k[i] = v[i]
		for j := i + 1; j < terms; j++ {
			k[i] -= m[i][j] * k[j]
		}
		k[i] /= m[i][i]
	}
	return k, true
}

func abs(x float64) float64 {
	if x < 0 {
		return -x
	}
	return x
}

// tokensWithin returns how many tokens that follow start tokens of context can
// be added to l in budget, at most most.
func (c *costModel) tokensWithin(l load, start, most int, budget time.Duration) int {
	lo, hi := 0, most
	for lo < hi {
		mid := (lo + hi + 1) / 2
		with := l
		with.add(start, mid)
		if c.predict(with) <= budget {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}
