package httpapi

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// into decodes a reply's body.
func into[T any](t *testing.T, r *reply) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(r.body, &v); err != nil || r.status != 200 || r.header["content-type"] != "application/json" {
		t.Fatalf("%d %q %s: %v", r.status, r.header["content-type"], r.body, err)
	}
	return v
}

func TestModels(t *testing.T) {
	s := startServer(t)
	type object struct {
		ID, Object, Root string
		Created          int64
		OwnedBy          string `json:"owned_by"`
		MaxModelLen      int    `json:"max_model_len"`
	}
	list := into[struct {
		Object string
		Data   []object
	}](t, s.get("/v1/models"))
	if list.Object != "list" || len(list.Data) != 2 || list.Data[1] != (object{"alias", "model", "tiny", 1700000000, "waybill", 1024}) {
		t.Errorf("%+v", list)
	}
	if m := into[object](t, s.get("/v1/models/tiny")); m != list.Data[0] {
		t.Errorf("%+v, want %+v", m, list.Data[0])
	}
	s.get("/v1/models/other").failure(404)
}

func TestTokenizeAndBack(t *testing.T) {
	s := startServer(t)
	type tokens struct {
		Count, MaxModelLen int
		Tokens             []int32
		TokenStrs          []string `json:"token_strs"`
	}
	got := into[tokens](t, s.post("/tokenize", `{"prompt":"once upon a time 😀","return_token_strs":true}`))
	if got.Count != len(got.Tokens) || strings.Join(got.TokenStrs, "") != "once upon a time 😀" {
		t.Errorf("%+v", got)
	}
	back := into[struct{ Prompt string }](t, s.post("/detokenize", `{"tokens":`+asJSON(got.Tokens)+`}`))
	if back.Prompt != "once upon a time 😀" {
		t.Errorf("back: %q", back.Prompt)
	}
	// What is told here is what a request gets.
	messages := `"messages":[{"role":"user","content":"hi"}]`
	chat := into[tokens](t, s.post("/tokenize", `{`+messages+`}`))
	if ids := s.post("/v1/chat/completions", `{`+messages+`,"max_tokens":1,"return_token_ids":true}`).answer().PromptTokenIDs; !sameIDs(ids, chat.Tokens) || len(ids) == 0 {
		t.Errorf("/tokenize says %v, a request gets %v", chat.Tokens, ids)
	}
	for _, bad := range []struct{ path, body string }{
		{"/tokenize", `{}`}, {"/tokenize", `{"prompt":"a","messages":[]}`}, {"/tokenize", `{"prompt":5}`}, {"/tokenize", `{"prompt":[1]}`},
		{"/tokenize", `{"messages":[{"role":"refuse","content":"a"}]}`}, {"/detokenize", `{"tokens":[1000]}`}, {"/detokenize", `{"tokens":[null]}`},
		{"/detokenize", `{"tokens":"a"}`}, {"/detokenize", `[`},
	} {
		s.post(bad.path, bad.body).failure(400)
	}
	s.post("/tokenize", `{"model":"other","prompt":"a"}`).failure(404)
}

// A special token's name is one token in a plain prompt, and only text in a
// message.
func TestSpecialTokensInMessagesAreText(t *testing.T) {
	s := startServer(t)
	name := s.e.TokenText(995)
	count := func(body string) int {
		t.Helper()
		return into[struct{ Count int }](t, s.post("/tokenize", body)).Count
	}
	if n := count(`{"prompt":` + asJSON(name) + `}`); n != 1 {
		t.Errorf("plain prompt: %d tokens, want 1", n)
	}
	with, without := count(`{"messages":[{"role":"user","content":`+asJSON(name)+`}]}`), count(`{"messages":[{"role":"user","content":""}]}`)
	if with < without+2 {
		t.Errorf("in a message: %d tokens, without %d: it was read as a special token", with, without)
	}
}

// A template that panics costs its own request, on the server's goroutine and
// on Intake's.
func TestPanicsCostOneRequest(t *testing.T) {
	s := startServer(t)
	body := `{"messages":[{"role":"panic","content":"a"}]}`
	s.post("/tokenize", body).failure(500)
	s.post("/v1/chat/completions", body).failure(500)
	s.post("/v1/chat/completions", `{"stream":true,`+body[1:]).failure(500)
	s.post("/v1/completions", short).answer()
}

// An echoed prompt may be larger than what a slow client is allowed to owe.
func TestLargeEchoIsNoSlowClient(t *testing.T) {
	s := startServer(t)
	ids := make([]int32, 1000)
	for i := range ids {
		ids[i] = int32(i * 7 % 900)
	}
	body := map[string]any{"prompt": ids, "echo": true, "logprobs": 20, "max_tokens": 4, "temperature": 0, "ignore_eos": true}
	j := asJSON(body)
	streamed := s.post("/v1/completions", `{"stream":true,`+j[1:])
	if events, _, err := splitEvents(streamed.text()); err != nil || len(events[0]) < 300<<10 {
		t.Fatalf("%v; the first event should exceed 256 KiB, status %d, %d bytes", err, streamed.status, len(streamed.body))
	}
	want := s.post("/v1/completions", j).answer()
	if got := join(streamed.events())[0]; got.text != want.Choices[0].content() || got.finish != "length" {
		t.Errorf("streamed %d bytes of text (%s), collected %d", len(got.text), got.finish, len(want.Choices[0].content()))
	}
}

func TestUnreadableRequestsAreCountedApart(t *testing.T) {
	s := startServer(t)
	c := s.dial()
	c.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
	c.Close()
	s.get("/version", "X-Long: "+strings.Repeat("x", 20<<10)).failure(431)
	eventually(t, "both are counted", func() bool { return s.metric("waybill:requests_unreadable_total") == 2 })
	if n := s.metric("waybill:requests_received_total"); n != 0 {
		t.Errorf("%v sequences received, want 0", n)
	}
	c = s.dial() // silence is no request
	c.Close()
	fresh := s.dial()
	fresh.send(request("GET", "/version", ""))
	fresh.must()
	fresh.Close()
	eventually(t, "all are closed", func() bool { return s.http.GetOpenConnectionsCount() == 0 })
	if n := s.metric("waybill:requests_unreadable_total"); n != 2 {
		t.Errorf("%v unreadable requests, want 2", n)
	}
}

// However many clients send texts at once, no more are tokenized than the memory of
// all cores allows; small ones do not wait.
func TestTextsAreTokenizedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{texts: make(chan struct{}, 2)}
		var running, most, ended atomic.Int64
		release := make(chan struct{})
		const clients = 20
		for range clients {
			go func() {
				defer s.inTurn(smallText)()
				most.Store(max(most.Load(), running.Add(1)))
				<-release
				running.Add(-1)
				ended.Add(1)
			}()
		}
		synctest.Wait()
		if n := running.Load(); n != 2 {
			t.Errorf("%d texts at once, want 2", n)
		}
		s.inTurn(smallText - 1)()
		close(release)
		synctest.Wait()
		if most.Load() > 2 || ended.Load() != clients {
			t.Errorf("%d texts at once, want 2; %d of %d ended", most.Load(), ended.Load(), clients)
		}
	})
}
