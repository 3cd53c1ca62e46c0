package httpapi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"waybill/actors"
)

// with returns a body with more fields.
func with(body map[string]any, more ...any) map[string]any {
	out := map[string]any{}
	for k, v := range body {
		out[k] = v
	}
	for i := 0; i < len(more); i += 2 {
		out[more[i].(string)] = more[i+1]
	}
	return out
}

func sameIDs(a, b []int32) bool { return slices.Equal(a, b) }

func TestSamplingFieldsReachTheSampler(t *testing.T) {
	s := startServer(t)
	const comp = "/v1/completions"
	for _, g := range goldens(t)[:3] {
		n := len(g.Tokens)
		greedy := greedyBody(g, n)
		ids := func(more ...any) []int32 { t.Helper(); return s.both(comp, with(greedy, more...)).Choices[0].TokenIDs }
		// Each of these leaves one token to choose: the best.
		for _, more := range [][]any{
			{}, {"temperature", 1, "top_k", 1, "seed", 5}, {"temperature", 1.5, "top_p", 1e-9, "seed", 6}, {"temperature", 1, "min_p", 1, "seed", 7},
		} {
			if got := ids(more...); !sameIDs(got, g.Tokens) {
				t.Errorf("%v: %v, want the greedy tokens %v", more, got, g.Tokens)
			}
		}
		if got := ids("temperature", 1.0, "seed", 3); sameIDs(got, g.Tokens) {
			t.Error("temperature 1 gives the greedy tokens")
		}
		if got := ids("repetition_penalty", 1e6); len(got) != n || len(slices.Compact(slices.Sorted(slices.Values(got)))) != n {
			t.Errorf("repetition_penalty 1e6: tokens repeat: %v", got)
		}
		best, second := g.Tokens[0], g.Tokens[1]
		if got := ids("logit_bias", map[string]any{fmt.Sprint(best): -100}); got[0] == best {
			t.Errorf("logit_bias -100 did not keep token %d away", best)
		}
		if got := ids("logit_bias", map[string]any{fmt.Sprint(second): 100}); slices.ContainsFunc(got, func(x int32) bool { return x != second }) {
			t.Errorf("logit_bias 100 for %d: %v", second, got)
		}
		if got := ids("allowed_token_ids", []int32{7, 9}); slices.ContainsFunc(got, func(x int32) bool { return x != 7 && x != 9 }) {
			t.Errorf("allowed_token_ids [7 9]: %v", got)
		}
		// With a bias of 20 one of two tokens always wins, until 2 for each use
		// have been taken off.
		two := with(greedy, "allowed_token_ids", []int32{7, 9}, "logit_bias", map[string]any{"7": 20}, "max_tokens", 40)
		count := func(more ...any) int {
			t.Helper()
			c := 0
			for _, id := range s.both(comp, with(two, more...)).Choices[0].TokenIDs {
				if id == 7 {
					c++
				}
			}
			return c
		}
		if a, b := count(), count("frequency_penalty", 2); a != 40 || b >= 40 || b < 15 {
			t.Errorf("token 7 comes %d times, with frequency_penalty 2 %d times; want 40, and 15 to 39", a, b)
		}
		if a := count("presence_penalty", 2); a != 40 {
			t.Errorf("presence_penalty is taken off once: token 7 comes %d times, want 40", a)
		}
		// A presence penalty lifts ties only: give the tokens equal weight.
		if got := ids("presence_penalty", 2, "logit_bias", map[string]any{}); sameIDs(got, g.Tokens) && n > 20 {
			t.Error("presence_penalty 2 changed nothing")
		}
	}
}

func TestEndsOfOutput(t *testing.T) {
	s := startServer(t)
	const comp, eos = "/v1/completions", 995
	g := goldens(t)[0]
	greedy := greedyBody(g, 20)
	toEOS := map[string]any{fmt.Sprint(eos): 100}
	c := s.both(comp, with(greedy, "ignore_eos", false, "logit_bias", toEOS)).Choices[0]
	if *c.FinishReason != "stop" || c.StopReason != nil || c.content() != "" || len(c.TokenIDs) != 1 {
		t.Errorf("end of sequence at once: %q %s %v %v", c.content(), *c.FinishReason, c.StopReason, c.TokenIDs)
	}
	c = s.both(comp, with(greedy, "logit_bias", toEOS)).Choices[0]
	if *c.FinishReason != "length" || len(c.TokenIDs) != 20 || c.content() != "" {
		t.Errorf("ignore_eos: %q %s %d tokens", c.content(), *c.FinishReason, len(c.TokenIDs))
	}
	c = s.both(comp, with(greedy, "logit_bias", toEOS, "skip_special_tokens", false, "max_tokens", 2)).Choices[0]
	if want := strings.Repeat(s.e.TokenText(eos), 2); c.content() != want || want == "" {
		t.Errorf("skip_special_tokens false: %q, want %q", c.content(), want)
	}
	c = s.both(comp, with(greedy, "ignore_eos", false, "logit_bias", toEOS, "min_tokens", 5)).Choices[0]
	if *c.FinishReason != "stop" || len(c.TokenIDs) != 6 {
		t.Errorf("min_tokens 5: %s after %d tokens, want stop after 6", *c.FinishReason, len(c.TokenIDs))
	}
	stop := g.Tokens[4]
	first := slices.Index(g.Tokens, stop)
	c = s.both(comp, with(greedy, "stop_token_ids", []int32{stop})).Choices[0]
	if *c.FinishReason != "stop" || fmt.Sprint(c.StopReason) != fmt.Sprint(stop) || len(c.TokenIDs) != first+1 ||
		c.content() != s.tok.Decode(g.Tokens[:first], true) {
		t.Errorf("stop_token_ids: %q %s %v %v", c.content(), *c.FinishReason, c.StopReason, c.TokenIDs)
	}
	c = s.both(comp, with(greedy, "stop_token_ids", []int32{stop}, "include_stop_str_in_output", true)).Choices[0]
	if want := s.tok.Decode(g.Tokens[:first+1], true); c.content() != want {
		t.Errorf("include_stop_str_in_output: %q, want %q", c.content(), want)
	}
	if u := s.post(comp, `{"prompt":[1,2],"ignore_eos":true}`).answer().Usage; u.Completion != 16 {
		t.Errorf("default max_tokens: %d tokens, want 16", u.Completion)
	}
	chat := `{"messages":[{"role":"user","content":"x"}],"ignore_eos":true,"max_tokens":9`
	if u := s.post("/v1/chat/completions", chat+`}`).answer().Usage; u.Completion != 9 {
		t.Errorf("chat max_tokens: %d tokens, want 9", u.Completion)
	}
	if u := s.post("/v1/chat/completions", chat+`,"max_completion_tokens":4}`).answer().Usage; u.Completion != 4 {
		t.Errorf("chat max_completion_tokens: %d tokens, want 4", u.Completion)
	}
	// Without a bound a chat goes on to the end of the context; the default bound
	// of a completion gives way to it.
	a := s.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"ignore_eos":true}`).answer()
	if a.Usage.Total != 1024 || *a.Choices[0].FinishReason != "length" {
		t.Errorf("chat without max_tokens: usage %+v, want 1024 in all", a.Usage)
	}
	long, _ := json.Marshal(make([]int32, 1020))
	if u := s.post(comp, `{"prompt":`+string(long)+`,"ignore_eos":true}`).answer().Usage; u.Completion != 4 {
		t.Errorf("default max_tokens near the end of the context: %d tokens, want 4", u.Completion)
	}
}

func TestPromptForms(t *testing.T) {
	s := startServer(t)
	const comp = "/v1/completions"
	base := map[string]any{"temperature": 0, "max_tokens": 6, "ignore_eos": true}
	ids := s.e.Tokenize("once upon a time", actors.EncodeOptions{AddSpecial: true, ParseSpecial: true})
	a := s.both(comp, with(base, "prompt", "once upon a time")).Choices[0]
	b := s.both(comp, with(base, "prompt", ids)).Choices[0]
	c := s.both(comp, with(base, "prompt", []string{"once upon a time"})).Choices[0]
	d := s.both(comp, with(base, "prompt", [][]int32{ids, {5, 6}})).Choices
	for i, x := range []choiceJSON{b, c, d[0]} {
		if x.content() != a.content() || !sameIDs(x.PromptTokenIDs, ids) {
			t.Errorf("form %d: %q after %v, want %q after %v", i, x.content(), x.PromptTokenIDs, a.content(), ids)
		}
	}
	chat := func(content any) event {
		return s.both("/v1/chat/completions", with(base, "messages", []any{map[string]any{"role": "user", "content": content}}))
	}
	parts := chat([]any{map[string]any{"type": "text", "text": "one "}, map[string]any{"type": "text", "text": "two"}})
	whole := chat("one two")
	if parts.Choices[0].content() != whole.Choices[0].content() || !sameIDs(parts.PromptTokenIDs, whole.PromptTokenIDs) || len(whole.PromptTokenIDs) == 0 {
		t.Errorf("parts %q after %v, string %q after %v", parts.Choices[0].content(), parts.PromptTokenIDs, whole.Choices[0].content(), whole.PromptTokenIDs)
	}
	if m := whole.Choices[0].Message; m.Role == nil || *m.Role != "assistant" {
		t.Errorf("message %+v", m)
	}
}

func TestSeedIsReproducibleAloneAndInCompany(t *testing.T) {
	s := startServer(t)
	g := goldens(t)[1]
	body := func(seed int) string {
		j, _ := json.Marshal(map[string]any{"prompt": g.IDs, "temperature": 1, "max_tokens": 24, "seed": seed, "ignore_eos": true, "n": 2, "return_token_ids": true})
		return string(j)
	}
	alone := map[int][]int32{}
	for seed := range 6 {
		a := s.post("/v1/completions", body(seed)).answer()
		alone[seed] = append(a.Choices[0].TokenIDs, a.Choices[1].TokenIDs...)
		if seed > 0 && sameIDs(alone[seed], alone[seed-1]) || sameIDs(a.Choices[0].TokenIDs, a.Choices[1].TokenIDs) {
			t.Errorf("seeds or outputs that should differ do not: %v", alone[seed])
		}
	}
	var wg sync.WaitGroup
	for round := range 12 {
		wg.Go(func() {
			a := s.post("/v1/completions", body(round%6)).answer()
			if got := append(a.Choices[0].TokenIDs, a.Choices[1].TokenIDs...); !sameIDs(got, alone[round%6]) {
				t.Errorf("seed %d in company: %v, alone %v", round%6, got, alone[round%6])
			}
		})
	}
	wg.Wait()
	a := s.post("/v1/completions", body(-1)).answer()
	if b := s.post("/v1/completions", body(-1)).answer(); !sameIDs(a.Choices[0].TokenIDs, b.Choices[0].TokenIDs) {
		t.Error("a negative seed is not reproducible")
	}
	free := `{"prompt":[1,2,3],"max_tokens":24,"ignore_eos":true}`
	if x, y := s.post("/v1/completions", free).answer(), s.post("/v1/completions", free).answer(); x.Choices[0].content() == y.Choices[0].content() {
		t.Error("two requests without a seed gave the same 24 tokens")
	}
}
