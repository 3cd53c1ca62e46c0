package httpapi

import (
	"strings"
	"testing"
)

func TestErrorMessagesDoNotRepeatWhatIsLong(t *testing.T) {
	s := startServer(t)
	c := s.dial()
	long := strings.Repeat("1", 100_000)
	for _, body := range []string{
		`{"prompt":"a","seed":` + long + `}`,
		`{"prompt":"a","temperature":"` + long + `"}`,
		`{"prompt":"a","logit_bias":{"` + strings.Repeat("é", 50_000) + `":1}}`,
		`{"prompt":"a",` + `"` + long + `":1,"` + long + `":1}`,
	} {
		c.send(request("POST", "/v1/completions", body))
		r := c.must()
		if e := r.failure(400); len(e.Error.Message) > 2*maxErrorChars || strings.Contains(e.Error.Message, "\ufffd") {
			t.Errorf("%.40s…: a message of %d bytes: %.200s", body, len(e.Error.Message), e.Error.Message)
		}
	}
	body := `{"messages":[{"role":"user","content":[{"type":"` + long + `"}]}]}`
	c.send(request("POST", "/v1/chat/completions", body))
	r := c.must()
	if e := r.failure(400); len(e.Error.Message) > 2*maxErrorChars {
		t.Errorf("a part's type: a message of %d bytes", len(e.Error.Message))
	}
}

func TestAllowedTokensAreNoMoreThanTheVocabulary(t *testing.T) {
	s := startServer(t)
	c := s.dial()
	ids := func(n int) string { return "[" + strings.Repeat("5,", n-1) + "5]" }
	vocab := s.e.VocabSize()
	c.send(request("POST", "/v1/completions", `{"prompt":"a","max_tokens":2,"n":8,"allowed_token_ids":`+ids(vocab)+`}`))
	if r := c.must(); r.status != 200 {
		t.Errorf("as many as the vocabulary has: status %d: %s", r.status, r.body)
	}
	c.send(request("POST", "/v1/completions", `{"prompt":"a","max_tokens":2,"allowed_token_ids":`+ids(vocab+1)+`}`))
	r := c.must()
	if e := r.failure(400); e.Error.Param == nil || *e.Error.Param != "allowed_token_ids" {
		t.Errorf("one more: %s", r.body)
	}
}
