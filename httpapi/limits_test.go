package httpapi

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Each limit on a request is answered with a 400 that gives its value, and what is
// just at the limit is not refused for it.
func TestEachLimitIsNamed(t *testing.T) {
	s := startServer(t, func(u *setup) { u.engine.MaxQueuedReqs = 2000 })
	list := func(item string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	bias := func(n int) string {
		var b []string
		for i := range n {
			b = append(b, fmt.Sprintf(`"%d":1`, i))
		}
		return "{" + strings.Join(b, ",") + "}"
	}
	c := s.dial()
	for _, l := range []struct {
		name  string
		limit int
		path  string
		body  func(n int) string
		above bool // the limit itself cannot be tried with this model
	}{
		{"n", maxN, "/v1/completions", func(n int) string { return fmt.Sprintf(`{"prompt":[1],"max_tokens":1,"n":%d}`, n) }, false},
		{"prompt", maxPrompts, "/v1/completions", func(n int) string { return `{"prompt":` + list("[1]", n) + `,"max_tokens":1}` }, false},
		{"stop", maxStops, "/v1/completions", func(n int) string { return `{"prompt":[1],"max_tokens":1,"stop":` + list(`"x"`, n) + `}` }, false},
		{"a stop string", maxStopLen, "/v1/completions", func(n int) string {
			return `{"prompt":[1],"max_tokens":1,"stop":"` + strings.Repeat("x", n) + `"}`
		}, false},
		{"stop_token_ids", maxStopIDs, "/v1/completions", func(n int) string { return `{"prompt":[1],"max_tokens":1,"stop_token_ids":` + list("1", n) + `}` }, false},
		{"logit_bias", maxLogitBias, "/v1/completions", func(n int) string { return `{"prompt":[1],"max_tokens":1,"logit_bias":` + bias(n) + `}` }, true},
		{"logprobs", maxLogprobs, "/v1/completions", func(n int) string { return fmt.Sprintf(`{"prompt":[1],"max_tokens":1,"logprobs":%d}`, n) }, false},
		{"messages", maxMessages, "/v1/chat/completions", func(n int) string {
			return `{"messages":` + list(`{"role":"user","content":""}`, n) + `,"max_tokens":1}`
		}, true},
		{"nested", maxJSONDepth, "/v1/completions", func(n int) string {
			return `{"prompt":[1],"max_tokens":1,"user":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`
		}, false},
		{"names", maxJSONNames, "/v1/completions", func(n int) string { // prompt, user and max_tokens are three
			return `{"prompt":[1],"user":` + list(`{"a":1}`, n-3) + `,"max_tokens":1}`
		}, false},
		{"the text", maxTextBytes, "/tokenize", func(n int) string { return `{"prompt":"` + strings.Repeat("a ", n/2) + strings.Repeat("a", n%2) + `"}` }, false},
		{"model", maxModelChars, "/v1/completions", func(n int) string { return `{"prompt":[1],"model":"` + strings.Repeat("x", n) + `"}` }, true},
	} {
		c.send(request("POST", l.path, l.body(l.limit+1)))
		r := c.must()
		if e := r.failure(400); !strings.Contains(e.Error.Message, fmt.Sprint(l.limit)) || !strings.Contains(e.Error.Message, l.name) {
			t.Errorf("%s above the limit of %d: %s", l.name, l.limit, e.Error.Message)
		}
		if l.above {
			continue
		}
		c.send(request("POST", l.path, l.body(l.limit)))
		if r := c.must(); r.status != 200 {
			t.Errorf("%s at the limit of %d: %d %.200s", l.name, l.limit, r.status, r.body)
		}
	}
}

// Proxies keep idle connections for 60 to 120 s: a server that closes first resets
// the request that they are just sending.
func TestIdleConnectionsOutliveProxies(t *testing.T) {
	s := startServer(t)
	if s.Server.http.IdleTimeout < 120*time.Second {
		t.Errorf("idle connections are closed after %v", s.Server.http.IdleTimeout)
	}
	c := s.dial()
	for range 2 {
		c.send(request("POST", "/v1/completions", short))
		c.must().answer()
		time.Sleep(300 * time.Millisecond)
	}
}
