package httpapi

import (
	"encoding/json"
	"testing"

	"waybill/actors"
)

// What is written by hand must be what encoding/json writes.
func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "plain", "\"\\\n\r\t\b\f\x00\x1f\x7f", "<&>", "é世😀", "\u2028\u2029\ufffd", "\xff\xf0\x9f", "a\xc3", "\xed\xa0\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := appendString(nil, []byte(s)); string(got) != string(want) {
			t.Fatalf("%q: %s, want %s", s, got, want)
		}
	})
}

// No body makes a decoder panic, and what passes can be computed.
func FuzzRequest(f *testing.F) {
	for _, b := range badBodies() {
		f.Add(b.path == endpoints[1].path, b.body)
	}
	for i, ep := range endpoints {
		f.Add(i == 1, `{`+ep.prompt+`,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`)
		f.Add(i == 1, `{`+ep.prompt+`,"n":3,"stop":["a","b"],"logit_bias":{"5":-3.5},"seed":-7,"min_tokens":2,"max_tokens":9,"top_k":-1}`)
		f.Add(i == 1, `{`+ep.prompt+`,"temperature":null,"stop":null,"tools":[],"response_format":{"type":"text"},"chat_template_kwargs":{"a":[1,{}]}}`)
	}
	f.Add(false, `{"prompt":[[1,2],[3]],"echo":true,"logprobs":5,"max_tokens":0}`)
	f.Add(true, `{"messages":[{"role":"user","content":[{"type":"text","text":"\ud83d\ude00"}]}],"logprobs":true,"top_logprobs":20}`)
	s := startServer(f)
	f.Fuzz(func(t *testing.T, chat bool, body string) {
		var r *actors.Request
		var a *answer
		var err *apiError
		if chat {
			var b chatBody
			if err = decodeJSON([]byte(body), &b); err == nil {
				r, a, err = b.request(s.Server)
			}
		} else {
			var b completionBody
			if err = decodeJSON([]byte(body), &b); err == nil {
				r, a, err = b.request(s.Server)
			}
		}
		if err != nil {
			if !json.Valid(bodyOf(err)) || err.message == "" || err.status != 400 && err.status != 404 {
				t.Fatalf("%s: error %d %q", body, err.status, err.message)
			}
			return
		}
		if len(r.Prompts) == 0 || len(r.Prompts) > maxPrompts || r.N < 1 || r.N > maxN || r.MaxTokens < -1 || a == nil {
			t.Fatalf("%s: %d prompts, n %d, max_tokens %d", body, len(r.Prompts), r.N, r.MaxTokens)
		}
		if err := s.e.CheckSampling(r.Sampling); err != nil {
			t.Fatalf("%s: passed, but %v", body, err)
		}
		for _, p := range r.Prompts {
			if bad := checkIDs("prompt", p.IDs, s.e.VocabSize()); bad != nil {
				t.Fatalf("%s: passed, but %v", body, bad)
			}
			if p.Render != nil {
				_, _, _ = p.Render(nil)
			}
		}
		for _, stop := range r.Stop {
			if stop == "" {
				t.Fatalf("%s: an empty stop string passed", body)
			}
		}
	})
}
