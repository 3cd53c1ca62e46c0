package tokenizer

import (
	"math/rand/v2"
	"testing"
	"unicode/utf8"
)

// TestStreamEqualsWholeDecode feeds random ids, most of which are parts of characters.
func TestStreamEqualsWholeDecode(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for name, tok := range testTokenizers(t) {
		for range 500 {
			ids := make([]int32, rng.IntN(12))
			for i := range ids {
				ids[i] = int32(rng.IntN(min(tok.VocabSize(), 400))) - 1
			}
			skip := rng.IntN(2) == 0
			d := tok.NewDecoder(DecoderOptions{SkipSpecial: skip})
			var got []byte
			for _, id := range ids {
				from := len(got)
				got = d.Append(got, id)
				if !utf8.Valid(got[from:]) {
					t.Fatalf("%s: %v: Append wrote %q", name, ids, got[from:])
				}
				if d.numHeld > 3 {
					t.Fatalf("%s: %v: %d bytes held", name, ids, d.numHeld)
				}
			}
			got = d.Flush(got)
			if want := tok.Decode(ids, skip); string(got) != want || !utf8.Valid(got) {
				t.Fatalf("%s: %v\n got %q\nwant %q", name, ids, got, want)
			}
			if d.Flush(nil) != nil {
				t.Fatalf("%s: a second Flush wrote something", name)
			}
		}
	}
}

// TestDecoderHoldsIncompleteCharacters splits an emoji and a broken character.
func TestDecoderHoldsIncompleteCharacters(t *testing.T) {
	for name, tok := range testTokenizers(t) {
		d := tok.NewDecoder(DecoderOptions{})
		feed := func(b byte) string { return string(d.Append(nil, tok.byteIDs[b])) }
		for i, c := range []struct {
			in   byte
			want string
		}{
			{'a', "a"},
			{0xF0, ""}, {0x9F, ""}, {0x98, ""}, {0x80, "😀"},
			{0xE2, ""}, {'b', "\uFFFDb"},
			{0x80, "\uFFFD"},
			{0xC3, ""}, {0xC3, "\uFFFD"}, {0xA9, "é"},
		} {
			if tok.byteIDs[c.in] < 0 {
				continue // Gemma and Llama 2 styles have no bytes for ASCII that is in the vocabulary
			}
			if got := feed(c.in); got != c.want {
				t.Errorf("%s: step %d, byte %#x: got %q, want %q", name, i, c.in, got, c.want)
			}
		}
	}
}

// TestContinuationKeepsFirstSpace: the text of a prompt and of what follows it are joined by a space.
func TestContinuationKeepsFirstSpace(t *testing.T) {
	tok := tiny(t, "llama2")
	ids := tok.Encode(nil, "The harbour master", EncodeOptions{})
	d := tok.NewDecoder(DecoderOptions{Continuation: true})
	var got []byte
	for _, id := range ids {
		got = d.Append(got, id)
	}
	if string(got) != " The harbour master" {
		t.Errorf("continuation: %q", got)
	}
	if got := tok.Decode(ids, true); got != "The harbour master" {
		t.Errorf("whole text: %q", got)
	}
}

func TestDecodeSkipsSpecialTokensOnly(t *testing.T) {
	tok := qwen3(t)
	ids := tok.Encode(nil, "<|im_start|>a<think>b</think><|im_end|>", EncodeOptions{ParseSpecial: true})
	if len(ids) != 6 {
		t.Fatalf("ids %v", ids)
	}
	if got := tok.Decode(ids, true); got != "a<think>b</think>" {
		t.Errorf("got %q", got)
	}
	if got := tok.Decode([]int32{-1, 1 << 30, int32(tok.VocabSize())}, false); got != "" {
		t.Errorf("ids out of range decoded to %q", got)
	}
}

func TestDecoderDoesNotAllocate(t *testing.T) {
	for name, tok := range testTokenizers(t) {
		ids := tok.Encode(nil, hardTexts(2000)["emoji"]+hardTexts(2000)["english"], EncodeOptions{})
		buf := make([]byte, 0, 1<<16)
		d := tok.NewDecoder(DecoderOptions{})
		if n := testing.AllocsPerRun(10, func() {
			buf = buf[:0]
			for _, id := range ids {
				buf = d.Append(buf, id)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations for %d tokens", name, n, len(ids))
		}
	}
}

func BenchmarkDecoder(b *testing.B) {
	tok := qwen3(b)
	ids := tok.Encode(nil, hardTexts(100_000)["english"]+hardTexts(100_000)["emoji"], EncodeOptions{})
	d := tok.NewDecoder(DecoderOptions{})
	buf := make([]byte, 0, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		buf = buf[:0]
		for _, id := range ids {
			buf = d.Append(buf, id)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(ids)), "ns/token")
}
