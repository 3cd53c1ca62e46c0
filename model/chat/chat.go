// Package chat renders chat messages with a model's own template, and keeps what clients write apart from what
// the template writes: no content ever becomes a control token.
//
// Strings from the client pass through the template in a protected form. Every control token in them, and every
// piece at their ends that could become one together with its surroundings, has its characters replaced one
// by one by reserved private-use characters. These survive trimming, slicing, splitting, joining and JSON, and
// they are as many as the characters they stand for. After rendering they are turned back, and their byte
// ranges go to the tokenizer as plain spans. A reserved character in a client's string is escaped, so that it
// can't be forged. Text without any control token passes unchanged, so its ids are those that Hugging Face's
// apply_chat_template gives.
//
// Two things are beyond this: a template that deletes characters from the middle of a content can join what stood
// apart (none known does), and tojson with ensure_ascii spells protected characters as escapes.
//
// A template may come from a stranger with its model. Its steps, the nesting of its macros, its variables and its
// output are limited while it runs, and a client that goes away ends it; see limits.go. Take templates from the
// model only, never from a request.
package chat

import (
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/ardanlabs/jinja"

	"waybill/model/tokenizer"
)

// Limits on one rendering.
const (
	// MaxOutput is the size of a rendered text in bytes. A context of a million tokens has about 4 MiB.
	MaxOutput = 16 << 20
	// MaxDepth is the nesting of JSON in messages, tools and kwargs. Tool schemas in use have some ten levels.
	MaxDepth = 64
	// MaxRange is the sum of the lengths of all ranges in one rendering; real templates count messages with them. An
	// empty loop over so many takes some 0.1 s (a million took 2.5 s on a busy machine).
	MaxRange = 1 << 16
	// compileTimeout ends the trial run of a template that does not end by itself; a real one takes 1 ms.
	compileTimeout = 5 * time.Second
)

// InputError is a rendering that failed because of what the client sent, or because the template refused it
// (raise_exception). Its text is meant for the client, with status 400.
type InputError struct{ Reason string }

// Error returns the reason.
func (e *InputError) Error() string { return e.Reason }

func inputErrorf(format string, args ...any) error { return &InputError{fmt.Sprintf(format, args...)} }

// Template is a compiled chat template. It is immutable and may be used from any goroutine.
type Template struct {
	plain     *jinja.Template // the template as it is
	rewritten *jinja.Template // compares with protected control tokens; for clients that sent some
	bos, eos  string
	guard     *guard
	// listContent: the template takes content as a list of parts, so lists of text are not joined.
	listContent bool
}

// Options are what a request says beside its messages.
type Options struct {
	// AddGenerationPrompt ends the text with the start of an assistant's message.
	AddGenerationPrompt bool
	// ContinueFinalMessage ends the text inside the last message, so that the model goes on with it. It excludes
	// AddGenerationPrompt.
	ContinueFinalMessage bool
	// Tools is a JSON array, or empty.
	Tools json.RawMessage
	// Kwargs is a JSON object of further template variables (chat_template_kwargs), or empty.
	Kwargs json.RawMessage
	// Now is what strftime_now formats.
	Now time.Time
	// Cancelled, if set, ends the rendering early once it returns true.
	Cancelled func() bool
}

// Compile parses a template. bos and eos are the texts of those tokens, "" if the model has none; specials are
// the texts that the tokenizer takes for control tokens (tokenizer.SpecialTokens).
func Compile(source, bos, eos string, specials []string) (*Template, error) {
	source = prepare(source)
	g, err := newGuard(source, bos, eos, specials)
	if err != nil {
		return nil, fmt.Errorf("chat: %w", err)
	}
	t := &Template{bos: bos, eos: eos, guard: g, listContent: listContent.MatchString(source)}
	counted, err := instrument(source)
	if err != nil {
		return nil, fmt.Errorf("chat: template: %w", err)
	}
	if t.plain, err = compile(counted); err != nil {
		return nil, fmt.Errorf("chat: template: %w", err)
	}
	if t.rewritten, err = compile(rewriteTests(counted, g)); err != nil {
		return nil, fmt.Errorf("chat: template with protected literals: %w", err)
	}
	if !t.ends() {
		return nil, fmt.Errorf("chat: template does not end within %v on two short messages", compileTimeout)
	}
	return t, nil
}

// compile keeps a panic in the template library from ending the process.
func compile(source string) (t *jinja.Template, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("parser failed: %v", r)
		}
	}()
	return jinja.Compile(source)
}

// listContent recognises templates that loop over the parts of a content: OpenAI's form.
var listContent = regexp.MustCompile(`\{%-?\s*for\s+\w+\s+in\s+[^%]*\bcontent\b`)

// ends tries the template. The goroutine of one that never ends is lost; the caller gives up with it.
func (t *Template) ends() bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Whether it renders does not matter here: a template may refuse any conversation.
		_, _, _ = t.Render([]byte(`[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`), Options{})
	}()
	timer := time.NewTimer(compileTimeout)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// Render renders a JSON array of messages and returns the text with the byte ranges in it that no control token
// may overlap. Message fields keep their order and may be any JSON. An error is always an *InputError.
func (t *Template) Render(messages json.RawMessage, o Options) (text string, plain []tokenizer.Span, err error) {
	if o.AddGenerationPrompt && o.ContinueFinalMessage {
		return "", nil, inputErrorf("add_generation_prompt and continue_final_message exclude each other")
	}
	r := reader{t: t}
	vars, err := r.variables(messages, o)
	if err != nil {
		return "", nil, err
	}
	// A template that compares a literal with text it has put together itself must find it there. So literals are
	// rewritten only if a client has sent a control token; without one the result is the reference's exactly.
	use := t.plain
	if r.found {
		use = t.rewritten
	}
	b := &budget{
		maxOut: MaxOutput, maxValue: valueSlack + 4*(len(messages)+len(o.Tools)+len(o.Kwargs)), cancelled: o.Cancelled,
	}
	out, err := run(use, vars, o.Now, b)
	if err != nil {
		return "", nil, err
	}
	if o.ContinueFinalMessage {
		if out, err = t.guard.cutAtMark(out); err != nil {
			return "", nil, err
		}
	}
	text, plain = t.guard.restore(out)
	return text, t.guard.close(text, plain), nil
}

// run executes a template with the functions that this package replaces.
func run(t *jinja.Template, vars map[string]jinja.Value, now time.Time, b *budget) (out string, err error) {
	var raised error
	raise := func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
		reason := "the chat template refused the messages"
		if len(args) > 0 && args[0].IsString() {
			reason = args[0].AsString()
		}
		raised = &InputError{reason}
		return jinja.Undefined(), raised
	}
	vars["raise_exception"] = jinja.NewCallable("raise_exception", raise)
	vars["strftime_now"] = jinja.NewCallable("strftime_now", strftimeNow(now))
	for name, f := range b.functions() {
		vars[name] = f
	}
	vars["range"] = jinja.NewCallable("range", boundedRange(MaxRange))
	defer func() {
		if r := recover(); r != nil {
			out, err = "", inputErrorf("the chat template failed: %v", r)
		}
	}()
	out, err = t.RenderValues(vars)
	switch {
	case raised != nil:
		return "", raised
	case err != nil:
		return "", inputErrorf("the chat template failed: %v", err)
	case len(out) > MaxOutput:
		return "", inputErrorf("the chat template wrote %d bytes, limit %d", len(out), MaxOutput)
	}
	return out, nil
}
