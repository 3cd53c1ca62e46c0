package httpapi

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"waybill/actors"
)

// badRequest is a body that must be refused, and what the error names.
type badRequest struct {
	name, path, body string
	status           int
	param            string
	code             string // of the error, if not the status
}

// badBodies lists requests that are wrong in one way each. "{}" in a body stands
// for a valid rest.
func badBodies() []badRequest {
	const comp, chat = "/v1/completions", "/v1/chat/completions"
	long := strings.Repeat("a ", 3000)
	list := []badRequest{
		{"over context", comp, `{"prompt":"` + long + `"}`, 400, "prompt", "context_length_exceeded"},
		{"over context chat", chat, `{"messages":[{"role":"user","content":"` + long + `"}]}`, 400, "prompt", "context_length_exceeded"},
		{"max_tokens over context", comp, `{"prompt":"a","max_tokens":5000}`, 400, "prompt", "context_length_exceeded"},
		{"unknown model", comp, `{"model":"other","prompt":"a"}`, 404, "model", "model_not_found"},
		{"unknown model chat", chat, `{"model":"other","messages":[]}`, 404, "model", "model_not_found"},
		{"malformed", comp, `{"prompt":"a"`, 400, "", ""},
		{"not an object", comp, `[1]`, 400, "", ""},
		{"empty", comp, ``, 400, "", ""},
		{"behind the end", comp, `{"prompt":"a"} x`, 400, "", ""},
		{"name twice", comp, `{"prompt":"a","prompt":"b"}`, 400, "", ""},
		{"not UTF-8", comp, "{\"prompt\":\"\xff\"}", 400, "", ""},
		{"too deep", comp, `{"prompt":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`, 400, "", ""},
		{"no prompt", comp, `{}`, 400, "prompt", ""},
		{"null prompt", comp, `{"prompt":null}`, 400, "prompt", ""},
		{"empty prompt", comp, `{"prompt":""}`, 400, "prompt", ""},
		{"one empty prompt of three", comp, `{"prompt":["a","","b"]}`, 400, "prompt", ""},
		{"empty list", comp, `{"prompt":[]}`, 400, "prompt", ""},
		{"empty ids", comp, `{"prompt":[[]]}`, 400, "prompt", ""},
		{"null id", comp, `{"prompt":[1,null]}`, 400, "prompt", ""},
		{"null ids", comp, `{"prompt":[[1],null]}`, 400, "prompt", ""},
		{"null string", comp, `{"prompt":["a",null]}`, 400, "prompt", ""},
		{"mixed", comp, `{"prompt":["a",1]}`, 400, "prompt", ""},
		{"object prompt", comp, `{"prompt":{}}`, 400, "prompt", ""},
		{"unknown id", comp, `{"prompt":[1,1000]}`, 400, "prompt", ""},
		{"negative id", comp, `{"prompt":[-1]}`, 400, "prompt", ""},
		{"fraction id", comp, `{"prompt":[1.5]}`, 400, "prompt", ""},
		{"no messages", chat, `{}`, 400, "messages", ""},
		{"empty messages", chat, `{"messages":[]}`, 400, "messages", ""},
		{"messages text", chat, `{"messages":"hi"}`, 400, "messages", ""},
		{"no role", chat, `{"messages":[{"content":"a"}]}`, 400, "messages", ""},
		{"content number", chat, `{"messages":[{"role":"user","content":5}]}`, 400, "messages", ""},
		{"image part", chat, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`, 400, "messages", ""},
		{"template refuses", chat, `{"messages":[{"role":"refuse","content":"a"}]}`, 400, "messages", ""},
		{"both ends", chat, `{"messages":[{"role":"user","content":"a"}],"add_generation_prompt":true,"continue_final_message":true}`, 400, "continue_final_message", ""},
		{"kwargs", chat, `{"messages":[{"role":"user","content":"a"}],"chat_template_kwargs":[]}`, 400, "chat_template_kwargs", ""},
		{"template", chat, `{"messages":[{"role":"user","content":"a"}],"chat_template":"x"}`, 400, "chat_template", ""},
		{"chat echo", chat, `{"messages":[{"role":"user","content":"a"}],"echo":true}`, 400, "echo", ""},
		{"top without logprobs", chat, `{"messages":[{"role":"user","content":"a"}],"top_logprobs":2}`, 400, "top_logprobs", ""},
		{"top_logprobs range", chat, `{"messages":[{"role":"user","content":"a"}],"logprobs":true,"top_logprobs":21}`, 400, "top_logprobs", ""},
		{"logprobs bool", comp, `{"prompt":"a","logprobs":true}`, 400, "logprobs", ""},
		{"logprobs number chat", chat, `{"messages":[{"role":"user","content":"a"}],"logprobs":5}`, 400, "logprobs", ""},
		{"max_completion_tokens", chat, `{"messages":[{"role":"user","content":"a"}],"max_completion_tokens":0}`, 400, "max_completion_tokens", ""},
		{"max_tokens 0", comp, `{"prompt":"a","max_tokens":0}`, 400, "max_tokens", ""},
		{"usage flag", comp, `{"prompt":"a","stream":true,"stream_options":{"include_usage":3}}`, 400, "stream_options.include_usage", ""},
	}
	fields := []struct{ param, value string }{
		{"n", "0"}, {"n", "129"}, {"n", `"1"`}, {"n", "1.5"}, {"n", "100"}, {"best_of", "3"},
		{"temperature", "-1"}, {"temperature", "2.1"}, {"temperature", `"warm"`}, {"temperature", "1e999"},
		{"top_p", "0"}, {"top_p", "1.1"}, {"min_p", "-0.1"}, {"min_p", "2"}, {"top_k", "-2"}, {"top_k", "0.5"},
		{"repetition_penalty", "0"}, {"repetition_penalty", "-1"}, {"presence_penalty", "2.5"}, {"frequency_penalty", "-3"},
		{"max_tokens", "-1"}, {"max_tokens", "99999999999999999999"}, {"min_tokens", "-1"}, {"min_tokens", "100"},
		{"n", "1e30"}, {"n", "9007199254740993.0"}, {"max_tokens", "2.5e0"},
		{"seed", "1.5"}, {"seed", `"a"`}, {"ignore_eos", "1"}, {"stream", `"yes"`}, {"stream_options", "true"},
		{"stop", "5"}, {"stop", `[5]`}, {"stop", `""`}, {"stop", `["a",null]`},
		{"stop", `["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]`},
		{"stop_token_ids", "[1000]"}, {"stop_token_ids", "[null]"}, {"stop_token_ids", "5"},
		{"allowed_token_ids", "[]"}, {"allowed_token_ids", "[-1]"},
		{"logit_bias", `{"x":1}`}, {"logit_bias", `{"1000":1}`}, {"logit_bias", `{"1":101}`}, {"logit_bias", `{"1":null}`}, {"logit_bias", "[]"}, {"logit_bias", `{"01":1}`},
		{"logprobs", "21"}, {"logprobs", "-1"}, {"prompt_logprobs", "21"},
		{"tools", `[{"type":"function"}]`}, {"tool_choice", `"required"`}, {"functions", `[{}]`},
		{"response_format", `{"type":"json_object"}`}, {"response_format", `{"type":"json_schema","json_schema":{"schema":{"type":7}}}`},
		{"structured_outputs", `{"regex":"("}`}, {"guided_json", "{}"}, {"guided_regex", `"("`}, {"regex", `"("`}, {"json_schema", `"{"`},
		{"suffix", `"x"`}, {"bad_words", `["a"]`}, {"use_beam_search", "true"}, {"truncate_prompt_tokens", "4"}, {"priority", "1"},
		{"length_penalty", "2"}, {"prompt_embeds", `"AA"`}, {"lora_path", `"x"`}, {"return_token_offsets", "true"},
	}
	for _, f := range fields {
		list = append(list, badRequest{f.param + "=" + f.value, comp, fmt.Sprintf(`{"prompt":"a",%q:%s}`, f.param, f.value), 400, f.param, ""})
	}
	return list
}

func TestWrongRequestsGetAnErrorBeforeTheStream(t *testing.T) {
	s := startServer(t)
	c := s.dial()
	n := 0
	for _, b := range badBodies() {
		bodies := []string{b.body}
		if strings.HasPrefix(b.body, "{\"") && !strings.Contains(b.body, `"stream`) && !strings.HasSuffix(b.body, "x") {
			bodies = append(bodies, `{"stream":true,`+b.body[1:])
		}
		for _, body := range bodies {
			c.send(request("POST", b.path, body))
			r := c.must()
			n++
			e := r.failure(b.status)
			param := ""
			if e.Error.Param != nil {
				param = *e.Error.Param
			}
			code := fmt.Sprint(e.Error.Code)
			want := b.code
			if want == "" {
				want = fmt.Sprint(b.status)
			}
			if param != b.param || code != want {
				t.Errorf("%s: param %q, code %v, want %q and %s: %s", b.name, param, code, b.param, want, r.body)
			}
			if b.param != "" && !strings.Contains(e.Error.Message, strings.SplitN(b.param, ".", 2)[0]) {
				t.Errorf("%s: the message does not name %s: %s", b.name, b.param, e.Error.Message)
			}
			if r.header["x-request-id"] == "" {
				t.Errorf("%s: no X-Request-Id", b.name)
			}
		}
	}
	s.quiet()
	if got := s.metric("waybill:requests_invalid_total"); got < float64(n) {
		t.Errorf("%d wrong requests, counted %v as invalid", n, got)
	}
	if got := s.metric("waybill:requests_admitted_total"); got != 0 {
		t.Errorf("%v sequences counted as admitted, want none", got)
	}
}

func TestHarmlessFieldsAndNullsAreAccepted(t *testing.T) {
	s := startServer(t)
	nulls := ""
	for _, f := range []string{
		"model", "max_tokens", "n", "best_of", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty",
		"frequency_penalty", "logit_bias", "seed", "stop", "stop_token_ids", "allowed_token_ids", "min_tokens", "ignore_eos",
		"include_stop_str_in_output", "skip_special_tokens", "add_special_tokens", "stream", "stream_options", "return_token_ids",
		"return_tokens_as_token_ids", "prompt_logprobs", "request_id", "user", "tools", "tool_choice", "response_format", "suffix",
		"echo", "logprobs", "top_logprobs", "max_completion_tokens", "chat_template", "chat_template_kwargs", "add_generation_prompt",
		"continue_final_message", "timings", "priority", "guided_json", "bad_words",
	} {
		nulls += fmt.Sprintf(",%q:null", f)
	}
	harmless := `,"model":"alias","best_of":1,"user":"me","tools":[],"tool_choice":"none","response_format":{ "type": "text" },"suffix":"","priority":0,` +
		`"use_beam_search":false,"length_penalty":1.0,"never_heard_of":{"a":[1]},"logit_bias":{},"stop":[],"top_k":-1,"Temperature":-5`
	for _, ep := range endpoints {
		if got := s.post(ep.path, `{`+ep.prompt+nulls+`}`).answer(); got.Model != "tiny" {
			t.Errorf("%s: model %q for a null", ep.path, got.Model)
		}
		if got := s.post(ep.path, `{`+ep.prompt+harmless+`,"max_tokens":3}`).answer(); got.Model != "alias" || got.Usage.Completion > 3 {
			t.Errorf("%s: model %q, usage %+v", ep.path, got.Model, got.Usage)
		}
	}
}

// A refusal of a prompt that is too long may not wait for anything but its
// tokens: neither for a slot nor for the step that is running.
func TestOverlongPromptIsRefusedWhileTheEngineIsStuck(t *testing.T) {
	hold := make(chan struct{})
	s := startServer(t, func(u *setup) {
		u.engine.Fault = func(point string) {
			if point == "step" {
				<-hold
			}
		}
	})
	c := s.dial()
	c.send(request("POST", "/v1/completions", `{"prompt":"a","max_tokens":2,"ignore_eos":true}`))
	eventually(t, "a step is in flight", func() bool { return s.e.Healthy() == nil && s.metric("waybill:places_in_use") == 1 })
	begin := time.Now()
	s.post("/v1/completions", `{"stream":true,"prompt":"`+strings.Repeat("a ", 3000)+`"}`).failure(400)
	if d := time.Since(begin); d > liveness/2 {
		t.Errorf("refused after %v", d)
	}
	close(hold)
	c.must().answer()
}

func TestPathsMethodsAndKeys(t *testing.T) {
	s := startServer(t, func(u *setup) { u.http.APIKey = "secret" })
	s.get("/nothing").failure(404)
	if r := s.get("/v1/completions"); r.header["allow"] == "" {
		t.Errorf("405 without Allow: %v", r.header)
	} else {
		r.failure(405)
	}
	s.post("/health", `{}`).failure(405)
	for _, h := range [][]string{nil, {"Authorization: Bearer wrong"}, {"Authorization: Basic secret"}, {"Authorization: Bearer"}} {
		s.post("/v1/completions", `{"prompt":"a"}`, h...).failure(401)
		s.get("/v1/models", h...).failure(401)
		s.post("/tokenize", `{"prompt":"a"}`, h...).failure(401)
	}
	s.post("/v1/completions", `{"prompt":"a"}`, "Authorization: bearer secret").answer()
	for _, p := range []string{"/health", "/ready", "/metrics", "/version"} {
		if r := s.get(p); r.status != 200 {
			t.Errorf("%s without a key: %d", p, r.status)
		}
	}
	s.post("/v1/completions", `{}`, "Authorization: Bearer secret", "Content-Encoding: gzip").failure(415)
}

func TestWholeNumbersMayBeWrittenAsFloats(t *testing.T) {
	s := startServer(t)
	for _, n := range []string{"4", "4.0", "4e0", "40E-1", "0.4e1"} {
		body := fmt.Sprintf(`{"prompt":[1,2,3],"max_tokens":%s,"seed":%s,"top_k":%s,"logprobs":%s,"n":%s,"min_tokens":%s,"ignore_eos":true}`, n, n, n, n, n, n)
		if a := s.post("/v1/completions", body).answer(); a.Usage.Completion != 16 {
			t.Errorf("4 written %s: %d tokens, want 4 outputs of 4", n, a.Usage.Completion)
		}
	}
}

func TestAnEmptyPromptOfSeveralIsNamed(t *testing.T) {
	s := startServer(t)
	r := s.post("/v1/completions", `{"prompt":["a","b","","c"]}`)
	if e := r.failure(400); !strings.Contains(e.Error.Message, "prompt 2 of 4") {
		t.Errorf("which prompt is empty? %s", e.Error.Message)
	}
}

// A prompt of megabytes is refused once it is over the limit, not at its end.
func TestAnOverlongPromptIsNotTokenizedToItsEnd(t *testing.T) {
	s := startServer(t)
	whole := time.Now()
	text := strings.Repeat("many words and 12 numbers; ", 1<<20/27)
	all := len(s.tok.Encode(nil, text, actors.EncodeOptions{}))
	d := time.Since(whole)
	began := time.Now()
	r := s.post("/v1/completions", `{"stream":true,"prompt":"`+text+`"}`)
	took := time.Since(began)
	e := r.failure(400)
	var seen int
	if _, err := fmt.Sscanf(e.Error.Message, "the prompt has at least %d tokens", &seen); err != nil || !strings.Contains(e.Error.Message, "context is 1024") {
		t.Errorf("the limit is not named: %s", e.Error.Message)
	}
	if seen <= 1024 || seen > all/10 {
		t.Errorf("refused after %d tokens of %d", seen, all)
	}
	t.Logf("tokenized in %v, refused in %v", d, took)
	if took > d+50*time.Millisecond {
		t.Errorf("refused after %v; tokenizing all of it takes %v", took, d)
	}
}

// A prompt of one endless word is refused by its length: to merge it would take
// seconds and hundreds of megabytes before there is a token to count.
func TestAnEndlessWordIsRefusedByItsLength(t *testing.T) {
	s := startServer(t)
	text := strings.Repeat("a", 16<<20)
	var before, after runtime.MemStats
	for _, c := range []struct{ path, body string }{
		{"/v1/completions", `{"prompt":"` + text + `"}`},
		{"/v1/completions", `{"prompt":["b","` + text + `"]}`},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"` + text + `"}]}`},
	} {
		runtime.ReadMemStats(&before)
		r := s.post(c.path, c.body)
		runtime.ReadMemStats(&after)
		if e := r.failure(400); !strings.Contains(e.Error.Message, "the prompt has at least 1025 tokens") || e.Error.Code != "context_length_exceeded" {
			t.Errorf("%s: %s", c.path, r.body)
		}
		// The test's own copies of the text are in it.
		if took := after.TotalAlloc - before.TotalAlloc; took > 12*uint64(len(text)) {
			t.Errorf("%s: refusing %d bytes took %d of memory", c.path, len(text), took)
		}
	}
	s.quiet()
}

// An error about a request that cannot be read does not repeat what it held, be it in
// a header that is wrong, in a line that is none, or behind either.
func TestUnreadableRequestsAreNotQuoted(t *testing.T) {
	s := startServer(t)
	for _, text := range []string{
		"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s3cret\x01\r\n\r\n",
		"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \"quo\\\"ted\" s3cret\x01\r\n\r\n",
		"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization Bearer s3cret\r\n\r\n",
		"GET /v1/models HTTP/1.1\r\nHost: x\r\nBearer s3cret : x\r\n\r\n",
		"GET /v1/models?key=s3cret\r\n\r\n",
		"GET v1/models?key=s3cret HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /v1/models HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: s3cret\r\n\r\n",
		"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.TrimSuffix(chunkedBody(short), "\r\n") + "Authorization: s3cret\x01\r\n\r\n",
	} {
		c := s.dial()
		c.send(text)
		r := c.must()
		if e := r.failure(400); strings.Contains(r.text(), "s3cret") || !strings.HasPrefix(e.Error.Message, "the request could not be read: ") {
			t.Errorf("%q gets %s", text, r.text())
		}
	}
}
