package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// randomTexts calls check with texts that mix kinds of characters, repeat some of them beyond every limit on lengths, and
// use the same words again and again.
func randomTexts(n int, check func(text string)) {
	rng := rand.New(rand.NewPCG(5, 6))
	words := []string{"the", " harbour", " Ankünfte", "港务长", "记录", "\n\t\t", " {", "return", "Über", "…", " naïve", "▁", "  "}
	for range 500 {
		word := make([]rune, 1+rng.IntN(12))
		for i := range word {
			word[i] = rune('a' + rng.IntN(26))
		}
		words = append(words, " "+string(word))
	}
	for range n {
		var text strings.Builder
		for range rng.IntN(40) {
			switch rng.IntN(8) {
			case 0:
				text.WriteString(strings.Repeat(string(splitAlphabet[rng.IntN(len(splitAlphabet))]), 1+rng.IntN(90)))
			case 1:
				text.WriteRune(splitAlphabet[rng.IntN(len(splitAlphabet))])
			case 2:
				for range rng.IntN(100) {
					text.WriteByte(byte('a' + rng.IntN(26)))
				}
			case 3:
				for range rng.IntN(30) {
					text.WriteRune(rune(0x4E00 + rng.IntN(2000)))
				}
			default:
				text.WriteString(words[rng.IntN(len(words))])
			}
		}
		check(text.String())
	}
}

// TestIDsMatchPlainMerging compares with rules that see every character, merges that are searched one by one, and no memo:
// for texts not met before, met before, and cut into slices.
func TestIDsMatchPlainMerging(t *testing.T) {
	for name, tok := range testTokenizers(t) {
		merges := plainMerges(tok)
		check := func(text string) {
			want := plainIDs(tok, merges, text)
			for range 2 {
				if got := tok.Encode(nil, text, EncodeOptions{}); !slices.Equal(got, want) {
					t.Fatalf("%s: %q\n got %v\nwant %v", name, text, got, want)
				}
			}
			e := tok.Begin(text, EncodeOptions{})
			for !e.Advance(1) {
			}
			if !slices.Equal(e.IDs(), want) {
				t.Fatalf("%s, in slices: %q\n got %v\nwant %v", name, text, e.IDs(), want)
			}
		}
		randomTexts(2000, check)
		check(readAll(t, "../../LICENSE"))
		check(readAll(t, "testdata/languages.txt"))
	}
}

// plainMerges returns the merge of each pair of ids that has one.
func plainMerges(tok *Tokenizer) map[[2]int32]uint64 {
	merges := map[[2]int32]uint64{}
	for _, s := range tok.pairs.slots {
		if s.key != noPair {
			merges[[2]int32{int32(s.key >> 32), int32(uint32(s.key))}] = s.merge
		}
	}
	return merges
}

// plainIDs is what Encode does without added tokens, in the plainest way.
func plainIDs(tok *Tokenizer, merges map[[2]int32]uint64, text string) (ids []int32) {
	for _, piece := range plainPieces(tok, text) {
		if id, ok := tok.whole(piece); ok {
			ids = append(ids, id)
			continue
		}
		var symbols []int32
		for pos := 0; pos < len(piece); {
			symbols, pos = tok.initial(symbols, piece, pos)
		}
		for {
			best, at := ^uint64(0), -1
			for i := range len(symbols) - 1 {
				if merge, ok := merges[[2]int32{symbols[i], symbols[i+1]}]; ok && (at < 0 || merge>>32 < best>>32) {
					best, at = merge, i
				}
			}
			if at < 0 {
				break
			}
			symbols = slices.Replace(symbols, at, at+2, int32(uint32(best)))
		}
		ids = append(ids, symbols...)
	}
	return ids
}

func plainPieces(tok *Tokenizer, text string) (all []string) {
	if tok.sentence == nil {
		if tok.nfc {
			text = composed(text)
		}
		rules := *tok.rules
		rules.near.usable = false
		return pieces(&rules, text)
	}
	ticks := 1 << 40
	var space spacer
	var words wordCutter
	if text == "" {
		return nil
	}
	space.begin(text, tok.sentence, true)
	for !space.step(&ticks) {
	}
	words.begin(tok.sentence.cut, space.result())
	for {
		piece, _, done := words.next(&ticks)
		if done {
			return all
		}
		all = append(all, piece)
	}
}

// TestMemoHoldsWhatWasPutIn lets goroutines remember and recall pieces that share a line: an entry found is the piece's
// own, whoever writes at the time.
func TestMemoHoldsWhatWasPutIn(t *testing.T) {
	m := newMemo()
	ids := func(i int) []int32 { return []int32{int32(i), int32(i + 1000), int32(i + 2000)}[:1+i%shortIDs] }
	var keys []shortKey
	for i := 0; len(keys) < 8; i++ {
		if key := shortKeyOf(fmt.Sprint(" ", i)); m.shortLine(key) == &m.short[7] {
			keys = append(keys, key)
		}
	}
	together(func(rng *rand.Rand) (recalled bool) {
		i := rng.IntN(len(keys))
		if rng.IntN(2) == 0 {
			m.rememberShort(keys[i], ids(i))
			return false
		}
		word := m.recallShort(keys[i])
		if word == 0 {
			return false
		}
		if got := appendShort(nil, word); !slices.Equal(got, ids(i)) {
			t.Errorf("piece %d: recalled %v, want %v", i, got, ids(i))
		}
		return true
	}, t)
	for i, key := range keys {
		m.rememberShort(key, ids(i))
		if got := appendShort(nil, m.recallShort(key)); !slices.Equal(got, ids(i)) {
			t.Errorf("piece %d: remembered %v, recalled %v", i, ids(i), got)
		}
	}
}

// TestMemoHoldsLongPieces is the same of long pieces that share an entry.
func TestMemoHoldsLongPieces(t *testing.T) {
	tok := qwen3(t)
	type long struct {
		piece string
		ids   []int32
	}
	var longs []long
	for i := 0; len(longs) < 8; i++ {
		piece := fmt.Sprintf("aaaa%d", 100_000+i)
		if line, _ := tok.memo.longLine(piece); line != &tok.memo.longs[7] {
			continue
		}
		// Two As in one, the second or the third id, the rest one by one. The start of a piece's ids joins with the end of
		// another's to the other piece, but not to its ids.
		var ids []int32
		for rest := piece; rest != ""; {
			n := 1
			if len(ids) == 1+len(longs)%2 {
				n = 2
			}
			id, ok := tok.ID(rest[:n])
			if !ok {
				t.Fatalf("no token is %q", rest[:n])
			}
			ids, rest = append(ids, id), rest[n:]
		}
		longs = append(longs, long{piece, ids})
	}
	together(func(rng *rand.Rand) (recalled bool) {
		var buf [longIDs]int32
		l := longs[rng.IntN(len(longs))]
		if rng.IntN(2) == 0 {
			tok.rememberLong(l.piece, l.ids)
			return false
		}
		got, ok := tok.recallLong(buf[:0], l.piece)
		if !ok {
			return false
		}
		if !slices.Equal(got, l.ids) {
			t.Errorf("%s: recalled %v, want %v", l.piece, got, l.ids)
		}
		return true
	}, t)
}

// together runs a step many times on several goroutines; it must have been recalled now and then.
func together(step func(rng *rand.Rand) (recalled bool), t *testing.T) {
	t.Helper()
	var wg sync.WaitGroup
	var recalled [4]int
	for g := range recalled {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 9))
			for range 200_000 {
				if step(rng) {
					recalled[g]++
				}
			}
		})
	}
	wg.Wait()
	for g, n := range recalled {
		if n == 0 {
			t.Errorf("goroutine %d recalled nothing", g)
		}
	}
}

// TestLimitsOfTheMemo: what does not fit is merged every time, and nothing else is recalled for it.
func TestLimitsOfTheMemo(t *testing.T) {
	tok := qwen3(t)
	tok.memo.rememberShort(shortKeyOf("one"), []int32{5, maxMemoID})
	if ids := tok.memo.recallShort(shortKeyOf("one")); ids != 0 {
		t.Errorf("an id beyond the limit was remembered: %x", ids)
	}
	a, _ := tok.ID("a")
	piece := strings.Repeat("a", longIDs+1)
	tok.rememberLong(piece, slices.Repeat([]int32{a}, longIDs+1))
	tok.rememberLong(piece, []int32{a})
	tok.rememberLong(piece, nil)
	if got, ok := tok.recallLong(nil, piece); ok {
		t.Errorf("too many ids, or ids of another text, were remembered: %v", got)
	}
	tok.rememberLong(piece[1:], slices.Repeat([]int32{a}, longIDs))
	if got, ok := tok.recallLong(nil, piece[1:]); !ok || len(got) != longIDs {
		t.Errorf("%d ids were not remembered: %v", longIDs, got)
	}
	for n := 1; n <= shortBytes; n++ {
		text := "0123456789abcdefghijkl"
		lo, hi := load64(text, 0), load64(text, 8)
		if got, want := shortKeyIn(lo, hi, n), shortKeyOf(text[:n]); got != want {
			t.Errorf("key of %d bytes: %x in 16 bytes, %x alone", n, got, want)
		}
	}
}
