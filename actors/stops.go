package actors

import "bytes"

// stopMatcher finds stop strings in text that arrives in pieces. It holds back
// only what may be the beginning of one.
type stopMatcher struct {
	stops   [][]byte
	include bool
	longest int
	held    []byte
}

func newStopMatcher(stops []string, include bool) *stopMatcher {
	m := &stopMatcher{include: include}
	for _, s := range stops {
		m.stops = append(m.stops, []byte(s))
		m.longest = max(m.longest, len(s))
	}
	return m
}

// next takes new text and returns what may be shown, and the stop string that
// ends the output, if one does. last says that no text follows. The result may
// share text's memory.
func (m *stopMatcher) next(text []byte, last bool) (show []byte, stop string, stopped bool) {
	if len(m.stops) == 0 {
		return text, "", false
	}
	all := text
	if len(m.held) > 0 {
		all = append(m.held, text...)
	}
	at, which := len(all), -1
	for i, s := range m.stops {
		if p := bytes.Index(all, s); p >= 0 && (p < at || p == at && which >= 0 && len(s) > len(m.stops[which])) {
			at, which = p, i
		}
	}
	if which >= 0 {
		end := at
		if m.include {
			end += len(m.stops[which])
		}
		m.held = nil
		return all[:end], string(m.stops[which]), true
	}
	keep := 0
	if !last {
		keep = m.partial(all)
	}
	show = append([]byte(nil), all[:len(all)-keep]...)
	m.held = append(m.held[:0:0], all[len(all)-keep:]...)
	return show, "", false
}

// partial returns the length of the longest end of text that begins a stop.
func (m *stopMatcher) partial(text []byte) int {
	for n := min(len(text), m.longest-1); n > 0; n-- {
		tail := text[len(text)-n:]
		for _, s := range m.stops {
			if len(s) > n && bytes.HasPrefix(s, tail) {
				return n
			}
		}
	}
	return 0
}
