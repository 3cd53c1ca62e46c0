package sched

import "time"

// costModel predicts the length of a step from its work:
//
//	time = a·tokens + b·tokens·context + c
//
// It is learned from finished steps by exponentially weighted least squares, so
// it follows the machine's speed. Until it has seen enough steps it uses a prior
// that is slow rather than fast, which keeps first chunks short.
type costModel struct {
	// Normal equations of the three coefficients, scaled to milliseconds,
	// hundreds of tokens and hundreds of thousands of token·context pairs.
	m [3][3]float64
	v [3]float64
	k [3]float64
	n int
}

// decay weighs a sample by 0.97 per later step: some 30 steps are remembered.
const decay = 0.97

// Units of the equations: they keep the three columns of like size.
const (
	tokenUnit = 1e2
	pairUnit  = 1e5
)

// prior is 0.5 ms a token, 0.1 µs a pair and 1 ms a step.
var prior = [3]float64{0.5 * tokenUnit, 1e-4 * pairUnit, 1}

// load is the work of a step.
type load struct{ tokens, pairs float64 }

func newCostModel() costModel {
	c := costModel{k: prior}
	for i := range c.m {
		c.m[i][i] = ridge
		c.v[i] = ridge * prior[i]
	}
	return c
}

// ridge ties the coefficients to the prior while samples are few or all alike.
const ridge = 1e-3

// loadOf returns the work of a plan.
func loadOf(p *Plan) load {
	var l load
	for i := range p.Rows {
		l.add(p.Rows[i].Start, p.Rows[i].Len)
	}
	return l
}

// add counts n tokens that follow start tokens of context.
func (l *load) add(start, n int) {
	l.tokens += float64(n)
	l.pairs += float64(n) * (float64(start) + float64(n)/2)
}

func (c *costModel) predict(l load) time.Duration {
	ms := c.k[0]*l.tokens/tokenUnit + c.k[1]*l.pairs/pairUnit + c.k[2]
	return time.Duration(ms * float64(time.Millisecond))
}

// learn takes a finished step.
func (c *costModel) learn(l load, elapsed time.Duration) {
	x := [3]float64{l.tokens / tokenUnit, l.pairs / pairUnit, 1}
	y := float64(elapsed) / float64(time.Millisecond)
	for i := range x {
		for j := range x {
			c.m[i][j] *= decay
			c.m[i][j] += x[i] * x[j]
		}
		c.v[i] = c.v[i]*decay + x[i]*y
		c.m[i][i] += ridge * (1 - decay)
		c.v[i] += ridge * (1 - decay) * prior[i]
	}
	c.n++
	c.solve()
}

// solve finds the coefficients, none below zero: one that would be is fixed at
// zero and the others are solved again.
func (c *costModel) solve() {
	fixed := [3]bool{}
	for range 3 {
		k, ok := solve3(c.m, c.v, fixed)
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

// solve3 solves m·k = v by elimination with the fixed coefficients at zero.
func solve3(m [3][3]float64, v [3]float64, fixed [3]bool) (k [3]float64, ok bool) {
	for i := range fixed {
		if fixed[i] {
			m[i], v[i] = [3]float64{}, 0
			m[i][i] = 1
		}
	}
	for col := range 3 {
		p := col
		for r := col + 1; r < 3; r++ {
			if abs(m[r][col]) > abs(m[p][col]) {
				p = r
			}
		}
		if abs(m[p][col]) < 1e-12 {
			return k, false
		}
		m[col], m[p] = m[p], m[col]
		v[col], v[p] = v[p], v[col]
		for r := col + 1; r < 3; r++ {
			f := m[r][col] / m[col][col]
			for j := col; j < 3; j++ {
				m[r][j] -= f * m[col][j]
			}
			v[r] -= f * v[col]
		}
	}
	for i := 2; i >= 0; i-- {
		k[i] = v[i]
		for j := i + 1; j < 3; j++ {
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
