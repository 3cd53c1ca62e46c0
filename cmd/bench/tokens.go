package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// writer makes texts of a wanted number of tokens for the target's tokenizer. It
// counts with the server's /tokenize; a server that has none is asked what two
// prompts cost, and texts are sized by that.
type writer struct {
	o     *Options
	c     *client
	words []string // that texts are made of

	counts   bool    // the server has /tokenize
	perWord  float64 // tokens per word, if it has none
	overhead float64 // tokens of an empty prompt, if it has none
}

// errNoTokenizer says that the server has no /tokenize.
var errNoTokenizer = errors.New("bench: the server has no /tokenize")

// newWriter finds out how the target counts.
func newWriter(ctx context.Context, o *Options, c *client) (*writer, error) {
	w := &writer{o: o, c: c, words: words, counts: true}
	n, err := w.count(ctx, strings.Join(words, " "))
	if errors.Is(err, errNoTokenizer) {
		w.counts = false
		return w, w.calibrate(ctx)
	}
	if err != nil {
		return nil, err
	}
	if n-w.special(ctx) == len(words) {
		return w, nil
	}
	// Some words are several tokens: only those that are one are kept, if there
	// are enough of them for prompts that differ.
	const enough = 64
	var single []string
	base, err := w.count(ctx, "a a")
	if err != nil {
		return nil, err
	}
	for _, word := range words {
		if n, err = w.count(ctx, "a a "+word); err != nil {
			return nil, err
		}
		if n == base+1 {
			single = append(single, word)
		}
	}
	if len(single) >= enough {
		w.words = single
	}
	return w, nil
}

// special returns the number of tokens of an empty text: those that the server
// adds by itself.
func (w *writer) special(ctx context.Context) int {
	n, err := w.count(ctx, "")
	if err != nil {
		return 0 // some servers refuse an empty text; then nothing is subtracted
	}
	return n
}

// count asks the server how many tokens a prompt has, without a chat template.
func (w *writer) count(ctx context.Context, text string) (int, error) {
	body, err := json.Marshal(map[string]any{
		"model": w.o.Model, "prompt": text, "content": text, "add_special_tokens": !w.o.chat(),
	})
	if err != nil {
		return 0, fmt.Errorf("bench: /tokenize: %w", err)
	}
	status, out, err := w.c.call(ctx, http.MethodPost, "/tokenize", body)
	if err != nil {
		return 0, err
	}
	var answer struct {
		Tokens []json.RawMessage `json:"tokens"`
	}
	if status != http.StatusOK || json.Unmarshal(out, &answer) != nil || answer.Tokens == nil {
		return 0, errNoTokenizer
	}
	return len(answer.Tokens), nil
}

// calibrate asks for the price of two prompts. The difference is tokens per word,
// the rest what the template and special tokens add.
func (w *writer) calibrate(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(w.o.Seed, 0xca11b))
	sizes := [2]int{32, 256}
	var cost [2]float64
	for i, n := range sizes {
		text := w.pick(rng, n)
		r := &Record{Due: time.Now()}
		body, err := w.o.payload(prompt{text: text, output: 1})
		if err != nil {
			return err
		}
		w.c.stream(ctx, w.o.endpoint(), "", body, r)
		if r.Err != "" {
			return fmt.Errorf("bench: cannot size prompts, a request of %d words failed: %s", n, r.Err)
		}
		if r.InputTokens == 0 {
			w.perWord = 1 // neither /tokenize nor usage: a word counts as a token
			return nil
		}
		cost[i] = float64(r.InputTokens)
	}
	w.perWord = (cost[1] - cost[0]) / float64(sizes[1]-sizes[0])
	if w.perWord < 0.1 {
		return fmt.Errorf("bench: cannot size prompts: usage says %g tokens for %d words and %g for %d", cost[0], sizes[0], cost[1], sizes[1])
	}
	if !w.o.chat() {
		w.overhead = math.Max(0, cost[0]-w.perWord*float64(sizes[0]))
	}
	return nil
}

// pick returns n random words.
func (w *writer) pick(rng *rand.Rand, n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = w.words[rng.IntN(len(w.words))]
	}
	return strings.Join(out, " ")
}

// text returns random words of n tokens, as near as the tokenizer allows.
func (w *writer) text(ctx context.Context, rng *rand.Rand, n int) (string, error) {
	return w.extend(ctx, rng, "", n)
}

// extend appends random words to a text until the whole has n tokens.
func (w *writer) extend(ctx context.Context, rng *rand.Rand, begin string, n int) (string, error) {
	start := strings.Fields(begin)
	if !w.counts {
		// The template's share (chat) is not part of a prompt's length; special tokens
		// of a plain prompt are, as they are where the server counts.
		k := int(math.Round((float64(n) - w.overhead) / w.perWord))
		return strings.TrimSpace(begin + " " + w.pick(rng, max(k-len(start), 1))), nil
	}
	all := append([]string(nil), start...)
	for range n - len(start) {
		all = append(all, w.words[rng.IntN(len(w.words))])
	}
	const tries = 6 // one is enough where each word is a token
	for range tries {
		got, err := w.count(ctx, strings.Join(all, " "))
		if err != nil {
			return "", err
		}
		// Correct by the share of words that is too much or too little: exact at once
		// where a word is a token, a few rounds elsewhere.
		switch {
		case got > n && len(all) > max(len(start), 1):
			all = all[:max(len(all)-max((got-n)*len(all)/got, 1), len(start), 1)]
		case got < n:
			for range max((n-got)*len(all)/max(got, 1), 1) {
				all = append(all, w.words[rng.IntN(len(w.words))])
			}
		default:
			return strings.Join(all, " "), nil
		}
	}
	return strings.Join(all, " "), nil
}

// tokens counts a given text, or estimates it at four bytes a token.
func (w *writer) tokens(ctx context.Context, text string) (int, error) {
	if !w.counts {
		return (len(text) + 3) / 4, nil
	}
	return w.count(ctx, text)
}
