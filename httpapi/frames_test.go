package httpapi

import (
	"fmt"
	"strings"
	"testing"
)

// endpoints are the two paths that complete, each with the part of a body that
// makes the same short prompt.
var endpoints = []struct{ path, prompt string }{
	{"/v1/completions", `"prompt":"once upon"`},
	{"/v1/chat/completions", `"messages":[{"role":"user","content":[{"type":"text","text":"once "},{"type":"text","text":"upon"}]}]`},
}

func TestStreamFramesInAllCombinations(t *testing.T) {
	s := startServer(t)
	for _, ep := range endpoints {
		// A token of the greedy output serves as the stop.
		first := s.post(ep.path, `{`+ep.prompt+`,"temperature":0,"max_tokens":8,"return_token_ids":true,"ignore_eos":true}`).answer()
		stopID := first.Choices[0].TokenIDs[5]
		for _, options := range []string{``, `{"include_usage":false}`, `{"include_usage":true}`, `{"include_usage":true,"continuous_usage_stats":true}`, `null`} {
			for _, finish := range []string{"stop", "length"} {
				for _, n := range []int{1, 2} {
					body := fmt.Sprintf(`{%s,"temperature":0,"seed":1,"max_tokens":8,"n":%d,"ignore_eos":true`, ep.prompt, n)
					if finish == "stop" {
						body += fmt.Sprintf(`,"stop_token_ids":[%d]`, stopID)
					}
					collected := s.post(ep.path, body+`}`).answer()
					body += `,"stream":true`
					if options != "" {
						body += `,"stream_options":` + options
					}
					name := fmt.Sprintf("%s %s %s n=%d", ep.path, options, finish, n)
					checkFrames(t, name, options, finish, n, s.post(ep.path, body+`}`), &collected)
				}
			}
		}
	}
}

// checkFrames checks one stream against the same request's collected answer.
func checkFrames(t *testing.T, name, options, finish string, n int, r *reply, want *event) {
	t.Helper()
	if !r.chunked || r.header["content-length"] != "" || r.header["content-encoding"] != "" ||
		r.header["x-accel-buffering"] != "no" || r.header["cache-control"] != "no-cache" ||
		r.header["content-type"] != "text/event-stream; charset=utf-8" {
		t.Errorf("%s: headers %v", name, r.header)
	}
	events := r.events()
	usage := strings.Contains(options, `"include_usage":true`)
	continuous := strings.Contains(options, `"continuous_usage_stats":true`)
	last := 0
	firstText := map[int]bool{}
	for i, e := range events {
		final := usage && i == len(events)-1
		switch {
		case final && (e.Choices == nil || len(e.Choices) != 0 || e.Usage == nil):
			t.Errorf("%s: the last event is not the usage event: %+v", name, e)
		case !final && len(e.Choices) != 1:
			t.Errorf("%s: event %d has %d choices", name, i, len(e.Choices))
		case !final && (e.Usage != nil) != continuous:
			t.Errorf("%s: event %d has usage %v", name, i, e.Usage)
		}
		if e.Usage != nil {
			if e.Usage.Completion < last {
				t.Errorf("%s: completion_tokens falls from %d to %d", name, last, e.Usage.Completion)
			}
			last = e.Usage.Completion
		}
		if e.ID != events[0].ID || e.Created != events[0].Created || e.Model != "tiny" {
			t.Errorf("%s: event %d has id %q, created %d, model %q", name, i, e.ID, e.Created, e.Model)
		}
		for _, c := range e.Choices {
			if !firstText[c.Index] {
				firstText[c.Index] = true
				if c.FinishReason != nil {
					t.Errorf("%s: the first text of choice %d shares its event with the finish", name, c.Index)
				}
				if d := c.Delta; d != nil && (d.Role == nil || *d.Role != "assistant" || d.Content == nil) {
					t.Errorf("%s: the first event of choice %d has no role or no content: %+v", name, c.Index, d)
				}
			}
			if c.FinishReason != nil && c.content() != "" {
				t.Errorf("%s: text %q in the finish event", name, c.content())
			}
		}
	}
	got := join(events)
	if len(got) != n {
		t.Fatalf("%s: %d choices, want %d", name, len(got), n)
	}
	for i := range want.Choices {
		w, g := &want.Choices[i], got[i]
		if w.content() != g.text || *w.FinishReason != g.finish || g.finish != finish || g.finishes != 1 || fmt.Sprint(w.StopReason) != fmt.Sprint(g.stop) {
			t.Errorf("%s choice %d: stream %q %q %v ×%d, collected %q %q %v, want %q",
				name, i, g.text, g.finish, g.stop, g.finishes, w.content(), *w.FinishReason, w.StopReason, finish)
		}
		if w.Message != nil && g.roles != 1 {
			t.Errorf("%s choice %d: the role came %d times", name, i, g.roles)
		}
	}
	if usage {
		g, w := *events[len(events)-1].Usage, *want.Usage
		g.Details, w.Details = usageJSON{}.Details, usageJSON{}.Details // the second run finds the first's blocks
		if g != w {
			t.Errorf("%s: usage %+v, collected %+v", name, g, w)
		}
	}
	if continuous && last != want.Usage.Completion {
		t.Errorf("%s: continuous usage ends at %d, want %d", name, last, want.Usage.Completion)
	}
}

func TestUsageCountsAPromptOncePerPrompt(t *testing.T) {
	s := startServer(t)
	one := s.post("/v1/completions", `{"prompt":[1,2,3],"max_tokens":4,"ignore_eos":true}`).answer()
	if u := one.Usage; u.Prompt != 3 || u.Completion != 4 || u.Total != 7 {
		t.Fatalf("usage %+v, want 3 + 4 = 7", u)
	}
	body := `{"prompt":[[1,2,3],[4,5,6,7,8]],"n":3,"max_tokens":4,"ignore_eos":true,"return_token_ids":true`
	got := s.post("/v1/completions", body+`}`).answer()
	if u := got.Usage; u.Prompt != 8 || u.Completion != 24 || u.Total != 32 {
		t.Errorf("two prompts, three outputs of 4 tokens each: usage %+v, want 8 + 24", u)
	}
	for i, c := range got.Choices {
		if c.Index != i || len(c.TokenIDs) != 4 || len(c.PromptTokenIDs) != []int{3, 5}[i/3] {
			t.Errorf("choice %d: index %d, %d tokens, prompt %v", i, c.Index, len(c.TokenIDs), c.PromptTokenIDs)
		}
	}
	events := s.post("/v1/completions", body+`,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`).events()
	if u := events[len(events)-1].Usage; u.Prompt != 8 || u.Completion != 24 {
		t.Errorf("streamed: usage %+v, want 8 + 24", u)
	}
	if u := events[len(events)-2].Usage; u.Prompt != 8 || u.Completion != 24 {
		t.Errorf("streamed, last choice: usage %+v, want 8 + 24", u)
	}
	if g := join(events); len(g) != 6 {
		t.Errorf("streamed: %d choices, want 6", len(g))
	}
}
