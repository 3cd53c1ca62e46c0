package httpapi

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// smuggled is a request that a body or a header hides. It must never be answered.
const smuggled = "GET /version HTTP/1.1\r\nHost: smuggled\r\n\r\n"

func chunkedBody(b string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(b), b) }

// Where a request's end could be seen in two ways, two servers in a row might see
// it differently: it is refused, or answered and the connection closed, so that what
// comes behind it is nobody's request.
func TestRequestsWithTwoEndsAreNotContinued(t *testing.T) {
	s := startServer(t)
	const post = "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d\r\n", n) }
	const both = len(short) + len(smuggled)
	for _, c := range []struct {
		name, text string
		status     int
	}{
		{"length and chunks", post + length(len(short)) + "Transfer-Encoding: chunked\r\n\r\n" + chunkedBody(short), 200},
		{"chunks and length", post + "Transfer-Encoding: chunked\r\n" + length(3) + "\r\n" + chunkedBody(short), 200},
		{"the same length twice", post + length(len(short)) + length(len(short)) + "\r\n" + short, 400},
		{"two lengths, the short one first", post + length(len(short)) + length(both) + "\r\n" + short, 400},
		{"two lengths, the long one first", post + length(both) + length(len(short)) + "\r\n" + short, 400},
		{"a list of lengths", post + fmt.Sprintf("Content-Length: %d, %d\r\n\r\n", len(short), both) + short, 400},
		{"a length with a sign", post + fmt.Sprintf("Content-Length: +%d\r\n\r\n", len(short)) + short, 400},
		{"a length in hexadecimal", post + fmt.Sprintf("Content-Length: 0x%x\r\n\r\n", len(short)) + short, 400},
		{"a length below zero", post + "Content-Length: -5\r\n\r\n" + short, 400},
		{"no length", post + "Content-Length: \r\n\r\n" + short, 400},
		{"a length beyond any", post + "Content-Length: 99999999999999999999999\r\n\r\n" + short, 400},
		{"a space before the colon", post + "Transfer-Encoding : chunked\r\n" + length(len(short)) + "\r\n" + short, 400},
		{"a coding that is none", post + "Transfer-Encoding: xchunked\r\n\r\n" + chunkedBody(short), 400},
		{"chunked is not the last", post + "Transfer-Encoding: chunked, identity\r\n\r\n" + chunkedBody(short), 400},
		{"two codings", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + chunkedBody(short), 400},
		{"chunks in HTTP/1.0", strings.Replace(post, "1.1", "1.0", 1) + "Transfer-Encoding: chunked\r\n\r\n" + chunkedBody(short), 400},
		{"a carriage return in a value", post + "X: a\rTransfer-Encoding: chunked\r\n" + length(len(short)) + "\r\n" + short, 400},
		{"a zero byte in a value", post + "X: a\x00b\r\n" + length(len(short)) + "\r\n" + short, 400},
		{"a line without a colon", post + "nonsense\r\n" + length(len(short)) + "\r\n" + short, 400},
		{"a value without a name", post + ": x\r\n" + length(len(short)) + "\r\n" + short, 400},
		{"no host", "POST /v1/completions HTTP/1.1\r\n" + length(len(short)) + "\r\n" + short, 400},
		{"two hosts", post + "Host: y\r\n" + length(len(short)) + "\r\n" + short, 400},
		{"no version", "GET /version\r\n\r\n", 400},
		{"another protocol", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
		{"two spaces", "GET  /version HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"a method that is none", "G@T /version HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"a chunk below zero", post + "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n", 400},
		{"a chunk beyond any", post + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc", 400},
		{"a chunk beyond the limit", post + "Transfer-Encoding: chunked\r\n\r\n40000000\r\nabc", 413},
		{"a chunk that does not end", post + "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%sXX0\r\n\r\n", len(short), short), 400},
		{"line feeds alone", post + "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\n%s\n0\n\n", len(short), short), 400},
		{"a length behind the chunks", post + "Transfer-Encoding: chunked\r\n\r\n" + strings.Replace(chunkedBody(short), "0\r\n\r\n", "0\r\nContent-Length: 5\r\n\r\n", 1), 400},
		{"a long trailer", post + "Transfer-Encoding: chunked\r\n\r\n" + strings.Replace(chunkedBody(short), "0\r\n\r\n", "0\r\nX: "+strings.Repeat("y", 20<<10)+"\r\n\r\n", 1), 431},
	} {
		conn := s.dial()
		conn.send(c.text + smuggled)
		r, err := conn.read()
		if err != nil || r.status != c.status {
			t.Errorf("%s: %+v, %v; want status %d", c.name, r, err, c.status)
			continue
		}
		if c.status == 200 {
			r.answer()
		} else {
			r.failure(c.status)
		}
		if rest, _ := io.ReadAll(conn.r); len(rest) > 0 {
			t.Errorf("%s: what comes behind it is answered: %.200q", c.name, rest)
		}
	}
	// What ends in one way only goes on.
	for _, c := range []struct{ name, text string }{
		{"spaces around the length", post + fmt.Sprintf("Content-Length:  %d  \r\n\r\n", len(short)) + short},
		{"another case", post + "TRANSFER-ENCODING: Chunked\r\n\r\n" + chunkedBody(short)},
		{"remarks on a chunk", post + "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x;a=b\r\n%s\r\n0\r\n\r\n", len(short), short)},
		{"a body that a GET has", "GET /version HTTP/1.1\r\nHost: x\r\n" + length(len(smuggled)) + "\r\n" + smuggled},
		{"empty lines before", "\r\n\r\nGET /version HTTP/1.1\r\nHost: x\r\n\r\n"},
	} {
		conn := s.dial()
		conn.send(c.text + request("GET", "/health", ""))
		if r := conn.must(); r.status != 200 {
			t.Errorf("%s: %d %s", c.name, r.status, r.body)
		}
		if r := conn.must(); r.status != 200 || strings.Contains(r.text(), "version") {
			t.Errorf("%s: the next answer is %d %s", c.name, r.status, r.body)
		}
	}
	if n := s.metric("waybill:places_in_use"); n != 0 {
		t.Errorf("%v places are in use", n)
	}
}

// A client that waits for a word before it sends its body gets one, holds no place
// meanwhile, and is refused at once if the body is too large.
func TestExpectContinue(t *testing.T) {
	s := startServer(t)
	c := s.dial()
	c.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 100000000\r\n\r\n")
	r, err := c.head()
	if err == nil && r.status == 100 { // fasthttp says so before it looks at the length
		r, err = c.read()
	}
	if err != nil {
		t.Fatal(err)
	}
	r.failure(413)
	if rest, _ := io.ReadAll(c.r); len(rest) > 0 {
		t.Errorf("and then with %q", rest)
	}
	c = s.dial()
	c.send(fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(short)))
	if r, err := c.head(); err != nil || r.status != 100 {
		t.Fatalf("%+v, %v", r, err)
	}
	// It never sends the body: no place was taken for it.
	if n := s.metric("waybill:places_in_use"); n != 0 {
		t.Errorf("a client that was told to go on holds %v places", n)
	}
	c.Close()
	s.quiet()
}

// Many outputs of one long prompt, and many requests in one write: their client goes
// away in the middle, and nothing is left.
func TestCrowdsThatGoAwayLeaveNothing(t *testing.T) {
	p := &pace{}
	s := startServer(t, withDump, func(u *setup) {
		u.engine.MaxQueuedReqs, u.engine.MaxSeqs, u.engine.Fault = 400, 8, p.hook
	})
	want := s.post("/v1/completions", short).answer().Choices[0].content()
	p.sleep.Store(int64(3 * time.Millisecond))
	long := ids(3, 900)
	for _, stream := range []string{"true", "false"} {
		for _, after := range []time.Duration{0, 5 * time.Millisecond, 40 * time.Millisecond, 200 * time.Millisecond} {
			c := s.dial()
			c.send(request("POST", "/v1/completions", `{"prompt":`+long+`,"max_tokens":100,"ignore_eos":true,"n":128,"stream":`+stream+`}`))
			time.Sleep(after)
			c.Close()
			pipe := s.dial()
			pipe.send(strings.Repeat(request("POST", "/v1/completions", `{"prompt":`+ids(5, 300)+`,"max_tokens":50,"ignore_eos":true,"stream":`+stream+`}`), 60))
			time.Sleep(after)
			pipe.Close()
		}
	}
	eventually(t, "all places are back", func() bool { return s.metric("waybill:places_in_use") == 0 })
	s.quiet()
	if n := s.metric("vllm:kv_cache_usage_perc"); n != 0 {
		t.Errorf("KV blocks are in use: %v", n)
	}
	eventually(t, "every waybill is booked", func() bool {
		return s.metric("vllm:request_success_total") == s.metric("waybill:requests_admitted_total")
	})
	p.sleep.Store(0)
	if got := s.post("/v1/completions", short).answer().Choices[0].content(); got != want {
		t.Errorf("the next answer is %q, want %q", got, want)
	}
}

// crowdedListener has no descriptor for the first connections that it is asked for.
type crowdedListener struct {
	net.Listener
	left []error
}

func (l *crowdedListener) Accept() (net.Conn, error) {
	if len(l.left) == 0 {
		return l.Listener.Accept()
	}
	err := l.left[0]
	l.left = l.left[1:]
	return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: os.NewSyscallError("accept4", err)}
}

// A process without descriptors or memory for one more connection serves those that
// it has, and takes the next when it can.
func TestServiceOutlivesAWantOfDescriptors(t *testing.T) {
	want := []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}
	s := startServer(t, func(u *setup) {
		u.listen = func(l net.Listener) net.Listener { return &crowdedListener{l, want} }
	})
	if r := s.get("/health"); r.status != 200 {
		t.Errorf("/health is %d, want 200", r.status)
	}
	if n := s.metric("waybill:accepts_without_room_total"); n != float64(len(want)) {
		t.Errorf("%v connections without room are counted, want %d", n, len(want))
	}
}

// Numbers at the ends of their ranges are refused by name, or mean what they say.
func TestNumbersAtTheEndsOfTheirRanges(t *testing.T) {
	s := startServer(t)
	g := goldens(t)[0]
	const tokens = 6
	base := greedyBody(g, tokens)
	delete(base, "temperature")
	post := func(fields string) *reply {
		t.Helper()
		body := fmt.Sprintf(`{"prompt":%s,"ignore_eos":true,"return_token_ids":true,%s}`, strings.ReplaceAll(fmt.Sprint(g.IDs), " ", ","), fields)
		return s.post("/v1/completions", body)
	}
	for _, f := range []struct{ param, fields string }{
		{"prompt", `"max_tokens":9223372036854775807`}, {"max_tokens", `"max_tokens":9223372036854775808`}, {"max_tokens", `"max_tokens":1e18`},
		{"max_tokens", `"max_tokens":-9223372036854775808`}, {"max_tokens", `"max_tokens":0`},
		{"min_tokens", `"max_tokens":6,"min_tokens":9223372036854775807`}, {"top_k", `"max_tokens":6,"top_k":-9223372036854775808`},
		{"n", `"max_tokens":6,"n":9223372036854775807`}, {"seed", `"max_tokens":6,"seed":9223372036854775808`}, {"seed", `"max_tokens":6,"seed":1e300`}, {"seed", `"max_tokens":6,"seed":0.5`},
		{"temperature", `"max_tokens":6,"temperature":1e400`}, {"temperature", `"max_tokens":6,"temperature":-5e-324`},
		{"repetition_penalty", `"max_tokens":6,"repetition_penalty":1e-45`}, {"repetition_penalty", `"max_tokens":6,"repetition_penalty":3.5e38`}, {"repetition_penalty", `"max_tokens":6,"repetition_penalty":5e-324`},
		{"logit_bias", `"max_tokens":6,"logit_bias":{"5":100.00000001}`}, {"logit_bias", `"max_tokens":6,"logit_bias":{"5":null}`}, {"logit_bias.5", `"max_tokens":6,"logit_bias":{"5":1e400}`},
		{"logit_bias", `"max_tokens":6,"logit_bias":{"-1":1}`}, {"logit_bias", `"max_tokens":6,"logit_bias":{"4294967301":1}`}, {"logit_bias", `"max_tokens":6,"logit_bias":{"1e2":1}`},
		{"stop_token_ids.0", `"max_tokens":6,"stop_token_ids":[4294967296]`}, {"stop_token_ids", `"max_tokens":6,"stop_token_ids":[-1]`},
	} {
		r := post(f.fields)
		if e := r.failure(400); e.Error.Param == nil || *e.Error.Param != f.param {
			t.Errorf("%s: %s, want an error with the param %s", f.fields, r.body, f.param)
		}
	}
	// However small or large, these leave only the best token.
	for _, fields := range []string{
		`"temperature":5e-324`, `"temperature":1e-300`, `"temperature":1e-40`, `"temperature":1e-30`, `"temperature":-0.0`, `"temperature":2,"top_p":5e-324`, `"temperature":2,"min_p":1`,
		`"temperature":0,"top_k":9223372036854775807,"seed":9223372036854775807`, `"temperature":0,"logit_bias":{"5":-100,"6":-5e-324}`,
	} {
		a := post(`"max_tokens":6,` + fields).answer()
		if got := a.Choices[0].TokenIDs; !sameIDs(got, g.Tokens[:tokens]) {
			t.Errorf("%s: tokens %v, want the greedy %v", fields, got, g.Tokens[:tokens])
		}
	}
	// Penalties that leave no finite number behind may choose anything, but choose.
	var wg sync.WaitGroup
	for _, fields := range []string{
		`"repetition_penalty":3.4e38,"temperature":1,"seed":-9223372036854775808`, `"repetition_penalty":1.5e-45,"temperature":1,"seed":1`, `"repetition_penalty":1.5e-45,"temperature":0`,
		`"repetition_penalty":3.4e38,"temperature":2,"frequency_penalty":2,"presence_penalty":2,"logit_bias":{"5":-100}`,
		`"repetition_penalty":3.4e38,"temperature":1,"allowed_token_ids":[5],"logit_bias":{"5":-100}`,
	} {
		wg.Go(func() {
			a := post(`"max_tokens":6,` + fields)
			if a.status != 200 || len(a.answer().Choices[0].TokenIDs) != tokens {
				t.Errorf("%s: %d %s", fields, a.status, a.body)
			}
		})
	}
	wg.Wait()
}

// What is wrong in a body is said in words.
func TestErrorsSayWhatWasFound(t *testing.T) {
	s := startServer(t)
	for _, c := range []struct{ path, body, want string }{
		{"/v1/completions", `{"prompt":"a","stop_token_ids":[1,null]}`, "null is not a token id"},
		{"/v1/completions", `{"prompt":"a","logit_bias":[5]}`, "logit_bias must be an object, not a list"},
		{"/v1/completions", `{"prompt":"a","logprobs":true}`, "not true"},
		{"/v1/completions", `{"prompt":"a","n":"1"}`, "not a string"},
		{"/v1/completions", `{"prompt":"a","stream":{}}`, "stream must be true or false, not an object"},
		{"/v1/completions", `[1]`, "the body must be a JSON object, not a list"},
		{"/v1/completions", `"a"`, "the body must be a JSON object, not a string"},
		{"/v1/completions", `7`, "the body must be a JSON object, not a number"},
		{"/detokenize", `{}`, "tokens"},
		{"/detokenize", `{"tokens":null}`, "tokens"},
		{"/v1/completions", "{\"prompt\":\"\xff\xfe\"}", "invalid UTF-8"},
		{"/tokenize", "{\"prompt\":\"a\xc3\"}", "invalid UTF-8"},
		{"/v1/completions", `{"prompt":"\ud800"}`, "surrogate"},
		{"/v1/completions", `{"prompt":"a"} {}`, "after top-level value"},
		{"/v1/chat/completions", `{"messages":"hi"}`, "not a string"},
		{"/v1/chat/completions", `{"messages":{}}`, "not an object"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"},"hi"]}`, "messages[1] must be an object with role and content, not a string"},
		{"/v1/chat/completions", `{"messages":[null]}`, "messages[0] must be an object with role and content, not null"},
		{"/v1/chat/completions", `{"messages":[{"role":5,"content":"a"}]}`, "messages[0]: role must be a string"},
		{"/tokenize", `{"messages":[{"role":"user","content":"a"}],"tools":[{}]}`, "tools is not supported"},
	} {
		r := s.post(c.path, c.body)
		if e := r.failure(400); !strings.Contains(e.Error.Message, c.want) {
			t.Errorf("%s %q: %s, want %q", c.path, c.body, e.Error.Message, c.want)
		}
	}
}
