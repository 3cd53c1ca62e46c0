package httpapi

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
)

// completionLogprobsJSON is the value of logprobs in a completion.
type completionLogprobsJSON struct {
	TextOffset    []int                `json:"text_offset"`
	TokenLogprobs []*float64           `json:"token_logprobs"`
	Tokens        []string             `json:"tokens"`
	TopLogprobs   []map[string]float64 `json:"top_logprobs"`
}

// chatLogprobsJSON is the value of logprobs in a chat.
type chatLogprobsJSON struct {
	Content []struct {
		Token   string  `json:"token"`
		Logprob float64 `json:"logprob"`
		Bytes   []int   `json:"bytes"`
		Top     []struct {
			Token   string  `json:"token"`
			Logprob float64 `json:"logprob"`
		} `json:"top_logprobs"`
	} `json:"content"`
}

func decodeInto[T any](t *testing.T, raw json.RawMessage) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return v
}

// streamLogprobs puts the logprobs of a stream's first choice together.
func (s *testServer) streamLogprobs(path string, body map[string]any) (comp completionLogprobsJSON, chat chatLogprobsJSON) {
	s.t.Helper()
	j, _ := json.Marshal(with(body, "stream", true))
	for _, e := range s.post(path, string(j)).events() {
		if raw := e.Choices[0].Logprobs; string(raw) != "null" {
			a, b := completionLogprobsJSON{}, chatLogprobsJSON{}
			if json.Unmarshal(raw, &a) != nil || json.Unmarshal(raw, &b) != nil {
				s.t.Fatalf("logprobs %s", raw)
			}
			comp.TextOffset = append(comp.TextOffset, a.TextOffset...)
			comp.TokenLogprobs = append(comp.TokenLogprobs, a.TokenLogprobs...)
			comp.Tokens = append(comp.Tokens, a.Tokens...)
			comp.TopLogprobs = append(comp.TopLogprobs, a.TopLogprobs...)
			chat.Content = append(chat.Content, b.Content...)
		}
	}
	return comp, chat
}

func TestLogprobsOfCompletions(t *testing.T) {
	s := startServer(t)
	const comp = "/v1/completions"
	g := goldens(t)[0]
	body := with(greedyBody(g, 8), "logprobs", 3)
	c := s.both(comp, body).Choices[0]
	l := decodeInto[completionLogprobsJSON](t, c.Logprobs)
	if len(l.Tokens) != 8 || len(l.TokenLogprobs) != 8 || len(l.TopLogprobs) != 8 || len(l.TextOffset) != 8 {
		t.Fatalf("logprobs %s", c.Logprobs)
	}
	for i := range l.Tokens {
		p, top := *l.TokenLogprobs[i], l.TopLogprobs[i]
		if p > 0 || len(top) == 0 || len(top) > 4 {
			t.Errorf("token %d: logprob %v, top %v", i, p, top)
		}
		for name, q := range top {
			if q > p {
				t.Errorf("token %d: %q is likelier (%v) than the greedy token (%v)", i, name, q, p)
			}
		}
	}
	streamed, _ := s.streamLogprobs(comp, body)
	if a, b := asJSON(streamed), asJSON(l); a != b {
		t.Errorf("streamed\n%s\ncollected\n%s", a, b)
	}
	asIDs := decodeInto[completionLogprobsJSON](t, s.both(comp, with(body, "return_tokens_as_token_ids", true)).Choices[0].Logprobs)
	for i, n := range asIDs.Tokens {
		if n != fmt.Sprintf("token_id:%d", g.Tokens[i]) {
			t.Errorf("token %d is named %q, want token_id:%d", i, n, g.Tokens[i])
		}
	}
	if zero := decodeInto[completionLogprobsJSON](t, s.both(comp, with(body, "logprobs", 0)).Choices[0].Logprobs); len(zero.TopLogprobs[0]) != 1 {
		t.Errorf("logprobs 0: top %v, want the token alone", zero.TopLogprobs[0])
	}
	if plain := s.both(comp, greedyBody(g, 8)).Choices[0]; string(plain.Logprobs) != "null" || plain.content() != c.content() {
		t.Errorf("without logprobs: %s, %q; with: %q", plain.Logprobs, plain.content(), c.content())
	}
}

func TestEchoWithLogprobs(t *testing.T) {
	s := startServer(t)
	const comp = "/v1/completions"
	g := goldens(t)[0]
	prompt := s.tok.Decode(g.IDs, true)
	plain := s.both(comp, greedyBody(g, 8)).Choices[0]
	if c := s.both(comp, with(greedyBody(g, 8), "echo", true)).Choices[0]; c.content() != prompt+plain.content() || string(c.Logprobs) != "null" {
		t.Errorf("echo: %q %s, want %q", c.content(), c.Logprobs, prompt+plain.content())
	}
	if c := s.both(comp, with(greedyBody(g, 0), "echo", true)).Choices[0]; c.content() != prompt || *c.FinishReason != "length" || len(c.TokenIDs) != 0 {
		t.Errorf("echo alone: %q %s %v, want %q", c.content(), *c.FinishReason, c.TokenIDs, prompt)
	}
	body := with(greedyBody(g, 8), "echo", true, "logprobs", 2)
	l := decodeInto[completionLogprobsJSON](t, s.both(comp, body).Choices[0].Logprobs)
	if len(l.Tokens) != len(g.IDs)+8 || l.TokenLogprobs[0] != nil || l.TopLogprobs[0] != nil || l.TextOffset[0] != 0 {
		t.Fatalf("%d tokens, want %d + 8, the first without a probability: %+v", len(l.Tokens), len(g.IDs), l)
	}
	for i, p := range l.TokenLogprobs[1:] {
		if p == nil || *p > 0 || math.IsNaN(*p) {
			t.Errorf("token %d: logprob %v", i+1, p)
		}
	}
	streamed, _ := s.streamLogprobs(comp, body)
	if a, b := asJSON(streamed), asJSON(l); a != b {
		t.Errorf("streamed\n%s\ncollected\n%s", a, b)
	}
	// Scoring: the probabilities of a text that was generated are those of its
	// generation, up to the rounding of another batch shape.
	gen := decodeInto[completionLogprobsJSON](t, s.both(comp, with(greedyBody(g, 8), "logprobs", 0)).Choices[0].Logprobs)
	scored := with(greedyBody(g, 0), "prompt", append(append([]int32{}, g.IDs...), g.Tokens[:8]...), "echo", true, "logprobs", 0)
	sc := decodeInto[completionLogprobsJSON](t, s.both(comp, scored).Choices[0].Logprobs)
	for i, p := range gen.TokenLogprobs {
		if q := sc.TokenLogprobs[len(g.IDs)+i]; math.Abs(*p-*q) > 1e-5 {
			t.Errorf("token %d: generated with %v, scored %v", i, *p, *q)
		}
	}
}

func TestPromptLogprobs(t *testing.T) {
	s := startServer(t)
	g := goldens(t)[0]
	body := with(greedyBody(g, 4), "prompt_logprobs", 1, "logprobs", 0)
	j, _ := json.Marshal(body)
	var a struct {
		Choices []struct {
			Prompt   []map[string]struct{ Rank int } `json:"prompt_logprobs"`
			Logprobs completionLogprobsJSON          `json:"logprobs"`
		} `json:"choices"`
	}
	r := s.post("/v1/completions", string(j))
	if err := json.Unmarshal(r.body, &a); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
	c := a.Choices[0]
	if len(c.Prompt) != len(g.IDs) || c.Prompt[0] != nil || len(c.Logprobs.Tokens) != 4 {
		t.Fatalf("%d prompt entries, %d output tokens: %s", len(c.Prompt), len(c.Logprobs.Tokens), r.body)
	}
	for i, id := range g.IDs[1:] {
		if e, ok := c.Prompt[i+1][fmt.Sprint(id)]; !ok || e.Rank < 1 {
			t.Errorf("prompt token %d (%d): %v", i+1, id, c.Prompt[i+1])
		}
	}
	chat := s.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"hello"}],"prompt_logprobs":0,"return_token_ids":true,"max_tokens":2}`).answer()
	if len(chat.PromptLogprobs) == 0 || len(chat.PromptLogprobs) != len(chat.PromptTokenIDs) {
		t.Errorf("chat: %d prompt logprobs, %d prompt ids", len(chat.PromptLogprobs), len(chat.PromptTokenIDs))
	}
}

func TestLogprobsOfChat(t *testing.T) {
	s := startServer(t)
	const chat = "/v1/chat/completions"
	body := map[string]any{
		"messages": []any{map[string]any{"role": "user", "content": "hello"}}, "temperature": 0, "max_tokens": 8, "ignore_eos": true,
		"logprobs": true, "top_logprobs": 3,
	}
	c := s.both(chat, body).Choices[0]
	l := decodeInto[chatLogprobsJSON](t, c.Logprobs)
	if len(l.Content) != 8 {
		t.Fatalf("%d tokens, want 8: %s", len(l.Content), c.Logprobs)
	}
	var bytes []byte
	for i, e := range l.Content {
		if len(e.Top) != 3 || e.Top[0].Token != e.Token || e.Top[0].Logprob != e.Logprob || e.Logprob > 0 {
			t.Errorf("token %d: %+v", i, e)
		}
		for _, b := range e.Bytes {
			bytes = append(bytes, byte(b))
		}
	}
	if got := strings.ToValidUTF8(string(bytes), "\ufffd"); strings.ReplaceAll(c.content(), "\ufffd", "") != strings.ReplaceAll(got, "\ufffd", "") {
		t.Errorf("bytes of the tokens %q, content %q", got, c.content())
	}
	_, streamed := s.streamLogprobs(chat, body)
	if a, b := asJSON(streamed), asJSON(l); a != b {
		t.Errorf("streamed\n%s\ncollected\n%s", a, b)
	}
	none := s.both(chat, with(body, "top_logprobs", 0)).Choices[0]
	if l := decodeInto[chatLogprobsJSON](t, none.Logprobs); len(l.Content) != 8 || len(l.Content[0].Top) != 0 {
		t.Errorf("top_logprobs 0: %s", none.Logprobs)
	}
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}
