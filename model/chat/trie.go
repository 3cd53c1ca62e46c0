package chat

// reverse turns bytes around: the end of a token is then the beginning of an entry.
func reverse(s string) string {
	out := make([]byte, len(s))
	for i := range len(s) {
		out[len(s)-1-i] = s[i]
	}
	return string(out)
}

// trie finds control tokens and their beginnings.
type trie struct {
	first [256]bool        // bytes that entries start with
	next  map[uint64]int32 // node<<8 | byte
	ends  []bool
	depth int // of the longest entry
}

func newTrie() *trie { return &trie{next: map[uint64]int32{}, ends: []bool{false}} }

// insert adds an entry.
func (t *trie) insert(s string) {
	node := int32(0)
	for i := range len(s) {
		key := uint64(node)<<8 | uint64(s[i])
		child, ok := t.next[key]
		if !ok {
			child = int32(len(t.ends))
			t.ends = append(t.ends, false)
			t.next[key] = child
		}
		node = child
	}
	if s != "" {
		t.first[s[0]] = true
		t.ends[node] = true
		t.depth = max(t.depth, len(s))
	}
}

// find returns the first entry in s[from:], the longest at its place; both are len(s) if there is none.
func (t *trie) find(s string, from int) (at, end int) {
	for at = from; at < len(s); at++ {
		if !t.first[s[at]] {
			continue
		}
		node, ok := int32(0), true
		for i := at; i < len(s); i++ {
			if node, ok = t.next[uint64(node)<<8|uint64(s[i])]; !ok {
				break
			}
			if t.ends[node] {
				end = i + 1
			}
		}
		if end > at {
			return at, end
		}
	}
	return len(s), len(s)
}

// longestEnd returns the length of the longest end of s that an entry starts with.
func (t *trie) longestEnd(s string) int {
	for from := max(0, len(s)-t.depth); from < len(s); from++ {
		node, ok := int32(0), true
		for i := from; i < len(s) && ok; i++ {
			node, ok = t.next[uint64(node)<<8|uint64(s[i])]
		}
		if ok {
			return len(s) - from
		}
	}
	return 0
}
