package httpapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"waybill/model/tokenizer"
)

// both sends a body collected and streamed, checks that the two answers say the
// same, byte for byte, and returns the collected one.
func (s *testServer) both(path string, body map[string]any) event {
	s.t.Helper()
	send := func(stream bool) *reply {
		b := map[string]any{}
		for k, v := range body {
			b[k] = v
		}
		b["return_token_ids"] = true
		if stream {
			b["stream"], b["stream_options"] = true, map[string]any{"include_usage": true}
		}
		j, err := json.Marshal(b)
		if err != nil {
			s.t.Fatal(err)
		}
		return s.post(path, string(j))
	}
	want := send(false).answer()
	events := send(true).events()
	got := join(events)
	for i := range want.Choices {
		w, g := &want.Choices[i], got[i]
		if g == nil {
			s.t.Fatalf("%v: choice %d is missing in the stream", body, i)
		}
		if w.content() != g.text || *w.FinishReason != g.finish || fmt.Sprint(w.StopReason) != fmt.Sprint(g.stop) || fmt.Sprint(w.TokenIDs) != fmt.Sprint(g.ids) {
			s.t.Errorf("%v choice %d:\n streamed %q %s %v %v\ncollected %q %s %v %v", body, i, g.text, g.finish, g.stop, g.ids,
				w.content(), *w.FinishReason, w.StopReason, w.TokenIDs)
		}
		if !utf8.ValidString(g.text) {
			s.t.Errorf("%v: text is not UTF-8: %q", body, g.text)
		}
	}
	u := events[len(events)-1].Usage
	if len(got) != len(want.Choices) || u == nil || u.Completion != want.Usage.Completion || u.Prompt != want.Usage.Prompt {
		s.t.Errorf("%v: %d choices, usage %+v; collected %d, %+v", body, len(got), u, len(want.Choices), want.Usage)
	}
	return want
}

// byteToken returns the token that stands for one byte.
func (s *testServer) byteToken(b byte) int32 {
	s.t.Helper()
	for id := range int32(s.e.VocabSize()) {
		if s.tok.TokenText(id) == string([]byte{b}) {
			return id
		}
	}
	s.t.Fatalf("no token for the byte %#x", b)
	return 0
}

// forced returns fields that make the model emit exactly the bytes of text, one
// token each; no byte may come twice. Biases fall by more than the logits vary,
// and a token that was used loses its bias to the penalty.
func (s *testServer) forced(text string) map[string]any {
	bias, allowed := map[string]any{}, []int32{}
	for i := range len(text) {
		id := s.byteToken(text[i])
		allowed = append(allowed, id)
		bias[fmt.Sprint(id)] = 100 - 90*float64(i)/float64(len(text))
	}
	return map[string]any{
		"prompt": []int32{500, 501, 502}, "temperature": 0, "logit_bias": bias, "allowed_token_ids": allowed,
		"repetition_penalty": 1e6, "max_tokens": len(text), "ignore_eos": true,
	}
}

func TestCharactersAreNeverCut(t *testing.T) {
	s := startServer(t)
	for _, text := range []string{"😀", "世é", "😀世é", "aé世", "Ω≈ç", "\u2028x", "\"\\\n\t<&>"} {
		if got := s.both("/v1/completions", s.forced(text)).Choices[0].content(); got != text {
			t.Errorf("forced %q, got %q", text, got)
		}
		// Cut off inside the last character: what is there stands for one U+FFFD.
		last, size := utf8.DecodeLastRuneInString(text)
		if size == 1 {
			continue
		}
		body := s.forced(text)
		body["max_tokens"] = len(text) - 1
		want := strings.TrimSuffix(text, string(last)) + "\ufffd"
		if got := s.both("/v1/completions", body).Choices[0].content(); got != want {
			t.Errorf("forced %q less a byte, got %q", want, got)
		}
	}
	body := s.forced("\xf0")
	body["max_tokens"] = 900
	got := s.both("/v1/completions", body)
	if n := len(got.Choices[0].TokenIDs); n != 900 {
		t.Errorf("%d tokens, want 900", n)
	}
}

func TestPromptCutInsideACharacterDoesNotLeak(t *testing.T) {
	s := startServer(t)
	const prompt = "secret \xf0\x9f"
	var ids []int32
	for i := range len(prompt) {
		ids = append(ids, s.byteToken(prompt[i]))
	}
	body := s.forced("\x98\x80ok")
	body["prompt"] = ids
	got := s.both("/v1/completions", body)
	if want := s.tok.Decode(got.Choices[0].TokenIDs, true); got.Choices[0].content() != want || !strings.HasSuffix(want, "ok") {
		t.Errorf("got %q, want %q", got.Choices[0].content(), want)
	}
}

// greedyBody asks for n greedy tokens after a golden prompt.
func greedyBody(g golden, n int) map[string]any {
	return map[string]any{"prompt": g.IDs, "temperature": 0, "max_tokens": n, "ignore_eos": true}
}

func TestStopStringsOverTokenBorders(t *testing.T) {
	s := startServer(t)
	for _, g := range goldens(t)[:3] {
		whole := s.both("/v1/completions", greedyBody(g, 40)).Choices[0]
		full := []rune(whole.content())
		if len(full) < 30 {
			t.Fatalf("only %d characters: %q", len(full), string(full))
		}
		for from := 3; from+9 < len(full); from += 4 {
			stop := string(full[from : from+5])
			before := string(full)[:strings.Index(string(full), stop)]
			for _, include := range []bool{false, true} {
				body := greedyBody(g, 40)
				body["stop"], body["include_stop_str_in_output"] = []string{"never there", stop}, include
				c := s.both("/v1/completions", body).Choices[0]
				want := before
				if include {
					want += stop
				}
				if c.content() != want || *c.FinishReason != "stop" || c.StopReason != stop {
					t.Errorf("stop %q: got %q %s %v, want %q", stop, c.content(), *c.FinishReason, c.StopReason, want)
				}
				if n := len(c.TokenIDs); n > 40 || !strings.HasPrefix(fmt.Sprint(whole.TokenIDs), strings.TrimSuffix(fmt.Sprint(c.TokenIDs), "]")) {
					t.Errorf("stop %q: tokens %v are not those of %v", stop, c.TokenIDs, whole.TokenIDs)
				}
			}
		}
	}
}

// What can not begin a stop string leaves in the step that made it; what can is
// held back, and not a byte more.
func TestStopStringsHoldBackNoMoreThanNeeded(t *testing.T) {
	s := startServer(t)
	g := goldens(t)[0]
	whole := s.both("/v1/completions", greedyBody(g, 40)).Choices[0]
	full := []rune(whole.content())
	stops := []string{string(full[10:14]) + "X", string(full[20]) + "Y", string(full[25:28]) + "Z", "\n\nEND"}
	body := greedyBody(g, 40)
	body["stop"], body["stream"], body["return_token_ids"] = stops, true, true
	j, _ := json.Marshal(body)
	text, tokens := "", 0
	held := 0
	for _, e := range s.post("/v1/completions", string(j)).events() {
		c := e.Choices[0]
		text += c.content()
		tokens += len(c.TokenIDs)
		if c.FinishReason != nil || tokens == 40 {
			continue
		}
		made := s.decodeWhole(whole.TokenIDs[:tokens])
		keep := 0
		for _, st := range stops {
			for n := 1; n < len(st); n++ {
				if strings.HasSuffix(made, st[:n]) {
					keep = max(keep, n)
				}
			}
		}
		if keep > 0 {
			held++
		}
		if text != made[:len(made)-keep] {
			t.Fatalf("after %d tokens %q was sent, made %q, may hold back %d bytes", tokens, text, made, keep)
		}
	}
	if text != string(full) {
		t.Errorf("text %q, want %q", text, string(full))
	}
}

// decodeWhole returns the text of ids without a character that is not complete.
func (s *testServer) decodeWhole(ids []int32) string {
	d := s.tok.NewDecoder(tokenizer.DecoderOptions{SkipSpecial: true, Continuation: true})
	var b []byte
	for _, id := range ids {
		b = d.Append(b, id)
	}
	return string(b)
}

func TestStopStringNeverCountsInsideMinTokens(t *testing.T) {
	s := startServer(t)
	g := goldens(t)[0]
	full := []rune(s.both("/v1/completions", greedyBody(g, 40)).Choices[0].content())
	body := greedyBody(g, 40)
	body["stop"], body["min_tokens"] = string(full[0]), 20
	c := s.both("/v1/completions", body).Choices[0]
	if len(c.TokenIDs) < 20 {
		t.Errorf("%d tokens, min_tokens is 20", len(c.TokenIDs))
	}
}
