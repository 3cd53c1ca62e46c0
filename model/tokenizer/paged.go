package tokenizer

// paged is a slice that grows without copying: growing a slice of a million symbols takes milliseconds, which
// a slice of work must not.
type paged[T any] struct {
	pages [][]T
	n     int
}

const (
	pageBits = 10
	// keptPages is what a reused merger keeps: 20 kB a page, so 1.3 MB of symbols.
	keptPages = 64
)

func (p *paged[T]) at(i int) *T { return &p.pages[i>>pageBits][i&(1<<pageBits-1)] }

func (p *paged[T]) push(v T) {
	if p.n>>pageBits == len(p.pages) {
		p.pages = append(p.pages, make([]T, 1<<pageBits))
	}
	p.n++
	*p.at(p.n - 1) = v
}

// shrink drops the pages of an unusually long piece.
func (p *paged[T]) shrink() {
	if len(p.pages) > keptPages {
		clear(p.pages[keptPages:])
		p.pages = p.pages[:keptPages]
	}
	p.n = 0
}
