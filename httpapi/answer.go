package httpapi

import (
	"encoding/json"
	"strconv"
	"time"

	"waybill/actors"
	"waybill/actors/waybill"
)

// answer formats one request's answer, streamed or collected. While streaming it
// belongs to the request's Detokenizer.
type answer struct {
	engine  *actors.Engine
	format  format
	id      string // chatcmpl- or cmpl- and the request's id
	created int64  // Unix seconds
	model   string
	head    []byte // `data: {"id":…,"object":…,"created":…,"model":…,`

	includeUsage, continuousUsage bool
	returnIDs, tokensAsIDs        bool
	logprobs, echo, timings       bool
	promptTop                     bool  // prompt_logprobs was asked for
	n                             int   // outputs per prompt
	open                          int   // choices that have not finished
	offsets                       []int // per choice: characters sent, for text_offset
	held                          int64 // bytes of prompts or messages that wait for Intake

	// For continuous usage: what was sent so far, over all choices.
	sofar   actors.Usage
	outputs []int  // per choice
	prompts []bool // per prompt: counted in sofar
}

// format is what differs between chat and plain completions.
type format interface {
	idPrefix() string
	object(stream bool) string
	// appendChoice appends the inside of a streamed choice, without index,
	// logprobs and finish_reason.
	appendChoice(dst []byte, text []byte, first, finish bool) []byte
	// promptOnTop says that what describes the prompt stands beside the choices,
	// not in them.
	promptOnTop() bool
	// logprobs returns the value of logprobs for tokens, from character offset.
	logprobs(a *answer, tokens []actors.TokenLogprobs, offset int) (value any, next int)
	// choice returns a collected choice.
	choice(a *answer, index int, c *actors.Choice) any
}

func newAnswer(s *Server, r *actors.Request, b *commonBody, f format) *answer {
	a := &answer{
		engine: s.cfg.Engine, format: f, created: time.Now().Unix(), model: s.answerModel(b.Model),
		returnIDs: isTrue(b.ReturnTokenIDs), tokensAsIDs: isTrue(b.TokensAsIDs),
		logprobs: r.Sampling.Logprobs != actors.NoLogprobs, echo: r.Echo, timings: isTrue(b.Timings),
		promptTop: b.PromptLogprobs != nil, n: r.N, open: len(r.Prompts) * r.N,
		offsets: make([]int, len(r.Prompts)*r.N),
	}
	if o := b.StreamOptions; o != nil {
		a.includeUsage = isTrue(o.IncludeUsage)
		a.continuousUsage = isTrue(o.ContinuousUsage)
		a.timings = a.timings || a.includeUsage && s.cfg.PerRequestMetrics
	}
	a.timings = a.timings && a.open == 1 // several sequences have several ledgers
	if a.continuousUsage {
		a.outputs, a.prompts = make([]int, a.open), make([]bool, len(r.Prompts))
	}
	return a
}

// begin sets the id and what every event starts with.
func (a *answer) begin(rid string, stream bool) {
	a.id = a.format.idPrefix() + rid
	h := append([]byte(nil), `data: {"id":`...)
	h = appendString(h, []byte(a.id))
	h = append(h, `,"object":"`...)
	h = append(h, a.format.object(stream)...)
	h = append(h, `","created":`...)
	h = strconv.AppendInt(h, a.created, 10)
	h = append(h, `,"model":`...)
	h = appendString(h, []byte(a.model))
	a.head = append(h, ',')
}

// AppendDelta appends the event of d; a finish is an event of its own, with an
// empty delta, as OpenAI's clients expect.
func (a *answer) AppendDelta(dst []byte, d *actors.Delta) []byte {
	if a.continuousUsage {
		a.count(d)
	}
	// Tokens without text, such as a stop token, are told only to who asked for
	// tokens.
	if len(d.Text) > 0 || d.First || d.Finish == waybill.Running {
		dst = a.appendEvent(dst, d, false)
	} else if len(d.IDs) > 0 && (a.returnIDs || a.logprobs) {
		dst = a.appendEvent(dst, d, false)
	}
	if d.Finish != waybill.Running {
		a.open--
		dst = a.appendEvent(dst, d, true)
	}
	return dst
}

// count adds a delta's tokens to what was sent so far: a prompt once, however
// many outputs it has.
func (a *answer) count(d *actors.Delta) {
	a.sofar.Completion += d.Usage.Completion - a.outputs[d.Index]
	a.outputs[d.Index] = d.Usage.Completion
	if p := d.Index / a.n; !a.prompts[p] {
		a.prompts[p] = true
		a.sofar.Prompt += d.Usage.Prompt
		a.sofar.Cached += d.Usage.Cached
	}
}

func (a *answer) appendEvent(dst []byte, d *actors.Delta, finish bool) []byte {
	dst = append(dst, a.head...)
	dst = append(dst, `"choices":[{"index":`...)
	dst = strconv.AppendInt(dst, int64(d.Index), 10)
	dst = append(dst, ',')
	text := d.Text
	if finish {
		text = nil
	}
	dst = a.format.appendChoice(dst, text, d.First && !finish, finish)
	dst = append(dst, `,"logprobs":`...)
	dst = a.appendLogprobs(dst, d, finish)
	dst = append(dst, `,"finish_reason":`...)
	if finish {
		dst = appendString(dst, []byte(d.Finish.String()))
		dst = append(dst, `,"stop_reason":`...)
		dst = appendStopReason(dst, d.StopString, d.StopID)
	} else {
		dst = append(dst, "null"...)
	}
	// The prompt's ids come once, with the choice's first event.
	withPrompt := a.returnIDs && d.First && !finish
	if a.returnIDs && !finish {
		dst = append(dst, `,"token_ids":`...)
		dst = appendIDs(dst, d.IDs)
	}
	if withPrompt && !a.format.promptOnTop() {
		dst = append(dst, `,"prompt_token_ids":`...)
		dst = appendIDs(dst, d.PromptIDs)
	}
	dst = append(dst, "}]"...)
	if withPrompt && a.format.promptOnTop() {
		dst = append(dst, `,"prompt_token_ids":`...)
		dst = appendIDs(dst, d.PromptIDs)
	}
	if a.continuousUsage {
		dst = append(dst, ',')
		dst = appendUsage(dst, a.sofar)
	}
	if finish && a.open == 0 && a.timings && !a.includeUsage {
		dst = appendTimings(dst, d.Bill)
	}
	return append(dst, "}\n\n"...)
}

// appendLogprobs appends the value of logprobs: those of an echoed prompt come
// with the first event.
func (a *answer) appendLogprobs(dst []byte, d *actors.Delta, finish bool) []byte {
	if !a.logprobs || finish {
		return append(dst, "null"...)
	}
	tokens := d.Logprobs
	if d.First && len(d.PromptLogprobs) > 0 {
		tokens = append(append([]actors.TokenLogprobs(nil), d.PromptLogprobs...), tokens...)
	}
	v, next := a.format.logprobs(a, tokens, a.offsets[d.Index])
	a.offsets[d.Index] = next
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: httpapi: logprobs do not marshal: " + err.Error())
	}
	return append(dst, b...)
}

func appendStopReason(dst []byte, s string, id int32) []byte {
	switch {
	case s != "":
		return appendString(dst, []byte(s))
	case id >= 0:
		return strconv.AppendInt(dst, int64(id), 10)
	}
	return append(dst, "null"...)
}

func appendUsage(dst []byte, u actors.Usage) []byte {
	dst = append(dst, `"usage":{"prompt_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.Prompt), 10)
	dst = append(dst, `,"completion_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.Completion), 10)
	dst = append(dst, `,"total_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.Prompt+u.Completion), 10)
	dst = append(dst, `,"prompt_tokens_details":{"cached_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.Cached), 10)
	return append(dst, "}}"...)
}

// AppendEnd appends the usage event, if it was asked for, and the terminator.
func (a *answer) AppendEnd(dst []byte, total actors.Usage, seqs []*actors.Sequence) []byte {
	if a.includeUsage {
		dst = append(dst, a.head...)
		dst = append(dst, `"choices":[],`...)
		dst = appendUsage(dst, total)
		if a.timings {
			dst = appendTimings(dst, seqs[0].Bill)
		}
		dst = append(dst, "}\n\n"...)
	}
	return append(dst, "data: [DONE]\n\n"...)
}

// AppendFailure appends an error event and the terminator: once the status is
// sent nothing else is possible.
func (a *answer) AppendFailure(dst []byte, f *actors.Failure) []byte {
	dst = append(dst, "data: "...)
	dst = append(dst, bodyOf(fromFailure(f))...)
	return append(dst, "\n\ndata: [DONE]\n\n"...)
}

// AppendKeepAlive appends a comment.
func (a *answer) AppendKeepAlive(dst []byte) []byte { return append(dst, ": keep-alive\n\n"...) }

// stopReason is vLLM's stop_reason: the string or id that stopped a choice.
func stopReason(c *actors.Choice) any {
	switch {
	case c.StopString != "":
		return c.StopString
	case c.StopID >= 0:
		return c.StopID
	}
	return nil
}

// tokenText returns how a token is named in logprobs.
func (a *answer) tokenText(id int32) string {
	if a.tokensAsIDs {
		return "token_id:" + strconv.Itoa(int(id))
	}
	return a.engine.TokenText(id)
}
