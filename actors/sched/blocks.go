package sched

// blockIdx names a KV block of the pool.
type blockIdx = int32

// none ends the free list.
const none blockIdx = -1

// blockPool owns the KV blocks of one cache group: who holds them, which are
// free, and which hold a known prefix. Free blocks form a list in the order in
// which they may be overwritten; a free block that holds a prefix stays findable
// until then.
type blockPool struct {
	size int // tokens in a block
	refs []int32
	next []blockIdx
	prev []blockIdx
	head blockIdx
	tail blockIdx
	free int

	index map[prefixKey]blockIdx
	// entries describe what an indexed block holds; id 0 means not indexed.
	entries []prefixEntry
	lastID  uint64

	// mark[b] is the version of the plan that last proposed b; it keeps one
	// proposal from naming a block twice without committing anything.
	mark []uint64
}

// prefixKey finds a block by what precedes it and by its own tokens' hash. The
// parent is named by an id that is never reused, so equal keys with equal tokens
// mean equal prefixes, whatever the hash.
type prefixKey struct {
	parent uint64
	hash   uint64
}

type prefixEntry struct {
	id     uint64
	key    prefixKey
	tokens []int32
}

// newBlockPool returns a pool of n free blocks of size tokens.
func newBlockPool(n, size int) *blockPool {
	p := &blockPool{
		size: size, refs: make([]int32, n), next: make([]blockIdx, n), prev: make([]blockIdx, n),
		head: none, tail: none, index: map[prefixKey]blockIdx{},
		entries: make([]prefixEntry, n), mark: make([]uint64, n),
	}
	for b := range n {
		p.pushTail(blockIdx(b))
	}
	return p
}

func (p *blockPool) pushTail(b blockIdx) {
	p.prev[b], p.next[b] = p.tail, none
	if p.tail != none {
		p.next[p.tail] = b
	} else {
		p.head = b
	}
	p.tail = b
	p.free++
}

func (p *blockPool) pushHead(b blockIdx) {
	p.prev[b], p.next[b] = none, p.head
	if p.head != none {
		p.prev[p.head] = b
	} else {
		p.tail = b
	}
	p.head = b
	p.free++
}

func (p *blockPool) unlink(b blockIdx) {
	if p.prev[b] != none {
		p.next[p.prev[b]] = p.next[b]
	} else {
		p.head = p.next[b]
	}
	if p.next[b] != none {
		p.prev[p.next[b]] = p.prev[b]
	} else {
		p.tail = p.prev[b]
	}
	p.free--
}

// hold adds a holder to a block that keeps its content.
func (p *blockPool) hold(b blockIdx) {
	if p.refs[b] == 0 {
		p.unlink(b)
	}
	p.refs[b]++
}

// take gives a free block to a new holder that overwrites it.
func (p *blockPool) take(b blockIdx) {
	if p.refs[b] != 0 {
		panic("BUG: sched: a block in use was allocated")
	}
	p.unlink(b)
	p.refs[b] = 1
	p.forget(b)
}

// release drops one holder of each block, last block first, so that the end of a
// prefix is overwritten before its beginning.
func (p *blockPool) release(blocks []blockIdx) {
	for i := len(blocks) - 1; i >= 0; i-- {
		b := blocks[i]
		p.refs[b]--
		switch {
		case p.refs[b] < 0:
			panic("BUG: sched: a block was released twice")
		case p.refs[b] > 0:
		case p.entries[b].id != 0:
			p.pushTail(b)
		default:
			p.pushHead(b)
		}
	}
}

// publish makes block b findable as the continuation of parent (0: a prompt's
// beginning) and returns the id under which its own continuation is found. If
// another block holds the same prefix already, that one stays.
func (p *blockPool) publish(b blockIdx, parent, hash uint64, tokens []int32) uint64 {
	if id := p.entries[b].id; id != 0 {
		return id
	}
	key := prefixKey{parent, hash}
	if old, ok := p.index[key]; ok {
		if equalTokens(p.entries[old].tokens, tokens) {
			return p.entries[old].id
		}
		return 0
	}
	p.lastID++
	p.entries[b] = prefixEntry{id: p.lastID, key: key, tokens: tokens}
	p.index[key] = b
	return p.lastID
}

// forget removes block b from the prefix index.
func (p *blockPool) forget(b blockIdx) {
	if e := &p.entries[b]; e.id != 0 {
		delete(p.index, e.key)
		*e = prefixEntry{}
	}
}

// lookup finds the block that holds tokens as the continuation of parent.
func (p *blockPool) lookup(parent, hash uint64, tokens []int32) (b blockIdx, id uint64, ok bool) {
	b, ok = p.index[prefixKey{parent, hash}]
	if !ok || !equalTokens(p.entries[b].tokens, tokens) {
		return none, 0, false
	}
	return b, p.entries[b].id, true
}

// HashBlock returns the hash of one block's tokens (FNV-1a over 32-bit words).
// Intake computes it off the Scheduler's path. A hit compares the tokens too, so
// a collision costs a miss, never a wrong answer.
func HashBlock(tokens []int32) uint64 {
	h := uint64(14695981039346656037)
	for _, t := range tokens {
		h ^= uint64(uint32(t))
		h *= 1099511628211
	}
	return h
}

func equalTokens(a, b []int32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
