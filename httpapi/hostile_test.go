package httpapi

import (
	"fmt"
	"strings"
	"testing"

	"waybill/model/heaptest"
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

// A body's fields are read one by one: however many elements fit into it, it takes a
// few times its size, garbage included, until it is refused.
func TestHostileBodiesTakeMemoryInProportion(t *testing.T) {
	const size, factor, slack = 8 << 20, 8, 16 << 20
	s := startServer(t)
	list := func(item string) string {
		n := size / (len(item) + 1)
		return strings.Repeat(item+",", n-1) + item
	}
	longest := ""
	for id, most := 0, 0; id < s.e.VocabSize(); id++ {
		if n := len(s.e.TokenText(int32(id))); n > most {
			longest, most = fmt.Sprint(id), n
		}
	}
	var numbered strings.Builder
	for i := 0; numbered.Len() < size; i++ {
		fmt.Fprintf(&numbered, `"%d":1,`, i)
	}
	entries := strings.TrimSuffix(numbered.String(), ",")
	for _, c := range []struct{ path, body string }{
		{"/v1/completions", `{"prompt":[1],"logit_bias":{` + entries + `}}`},
		{"/v1/completions", `{"prompt":[1],"stop":[` + list(`""`) + `]}`},
		{"/v1/completions", `{"prompt":[1],"stop_token_ids":[` + list("1") + `]}`},
		{"/v1/completions", `{"prompt":[1],"allowed_token_ids":[` + list("1") + `]}`},
		{"/v1/completions", `{"prompt":[` + list(`""`) + `]}`},
		{"/v1/completions", `{"prompt":[` + list(`[]`) + `]}`},
		{"/v1/completions", `{"prompt":[` + list(`[1]`) + `]}`},
		{"/v1/completions", `{"prompt":[` + list(`1`) + `]}`},
		{"/v1/completions", `{"prompt":[1],"max_tokens":0,"user":[` + list(`{}`) + `]}`},
		{"/v1/completions", `{"prompt":[1],"max_tokens":0,` + entries + `}`},
		{"/v1/completions", `{"prompt":[1],"stream":true,"stream_options":{` + entries + `},"max_tokens":0}`},
		{"/v1/completions", `{"prompt":[1],"tools":[` + list(`{}`) + `]}`},
		{"/v1/chat/completions", `{"messages":[` + list(`{}`) + `]}`},
		{"/v1/chat/completions", `{"messages":[` + list(`null`) + `]}`},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":[` + list(`{}`) + `]}]}`},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":""}],"max_tokens":0,"chat_template_kwargs":{` + entries + `}}`},
		{"/tokenize", `{"messages":[` + list(`{}`) + `]}`},
		{"/tokenize", `{"prompt":"` + strings.Repeat("a ", size/2) + `","return_token_strs":true}`},
		{"/detokenize", `{"tokens":[` + list(`-1`) + `]}`},
		{"/detokenize", `{"tokens":[` + list(longest) + `]}`},
	} {
		text := request("POST", c.path, c.body)
		conn := s.dial()
		var r *reply
		took := heaptest.Peak(func() {
			conn.send(text)
			r = conn.must()
		})
		conn.Close()
		if r.status != 400 {
			t.Errorf("%.80s…: status %d", c.body, r.status)
		}
		if took > factor*size+slack {
			t.Errorf("%.80s…: a body of %d MB took %d MB: %.200s", c.body, len(c.body)>>20, took>>20, r.body)
		}
		t.Logf("%.70s… %.1f times, %.100s", c.body, float64(took)/float64(len(c.body)), r.body)
	}
}
