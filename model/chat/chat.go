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
// What can not be bounded: a template runs to its end. Loops over range are counted, the output is limited
// after the fact, Compile tries the template on a short conversation, and JSON nesting is limited (a recursive
// macro goes as deep as its data); but string repetition and recursion without data have no hook in the
// template library. Take templates from the model only, never from a request.
package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
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
	// MaxRange is the sum of the lengths of all ranges a template makes; real ones count messages.
	MaxRange = 1 << 20
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
	if t.plain, err = compile(source); err != nil {
		return nil, fmt.Errorf("chat: template: %w", err)
	}
	if t.rewritten, err = compile(rewriteTests(source, g)); err != nil {
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
	use := t.plain
	if r.found {
		use = t.rewritten
	}
	out, err := run(use, vars, o.Now)
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
func run(t *jinja.Template, vars map[string]jinja.Value, now time.Time) (out string, err error) {
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

// boundedRange is range() with a budget for the whole rendering.
func boundedRange(budget int64) func([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
	return func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
		nums := make([]int64, len(args))
		for i, a := range args {
			if !a.IsInt() {
				return jinja.Undefined(), errors.New("range: an argument is not an integer")
			}
			nums[i] = a.AsInt()
		}
		start, stop, step := int64(0), int64(0), int64(1)
		switch len(nums) {
		case 1:
			stop = nums[0]
		case 2:
			start, stop = nums[0], nums[1]
		case 3:
			start, stop, step = nums[0], nums[1], nums[2]
		default:
			return jinja.Undefined(), fmt.Errorf("range: %d arguments", len(args))
		}
		if step == 0 {
			return jinja.Undefined(), errors.New("range: step 0")
		}
		var items []jinja.Value
		for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
			if budget--; budget < 0 {
				return jinja.Undefined(), fmt.Errorf("range: more than %d numbers in one rendering", int64(MaxRange))
			}
			items = append(items, jinja.NewInt(i))
			if next := i + step; (next > i) != (step > 0) {
				break // past the largest integer
			}
		}
		return jinja.NewList(items), nil
	}
}

// strftimeNow is strftime_now with a clock that is passed in.
func strftimeNow(now time.Time) func([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
	return func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
		if len(args) != 1 || !args[0].IsString() {
			return jinja.Undefined(), errors.New("strftime_now: one format string is needed")
		}
		return jinja.NewString(strftime(args[0].AsString(), now)), nil
	}
}

// strftime formats t as Python's datetime.strftime does in the C locale; unknown directives stay as they are.
func strftime(format string, t time.Time) string {
	layouts := map[byte]string{
		'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'B': "January", 'b': "Jan", 'h': "Jan",
		'A': "Monday", 'a': "Mon", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'j': "002",
		'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'z': "-0700", 'Z': "MST",
		'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05", 'f': "000000",
	}
	var out strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			out.WriteByte(format[i])
			continue
		}
		i++
		if format[i] == '-' && i+1 < len(format) { // glibc: no leading zero
			if layout, ok := layouts[format[i+1]]; ok {
				i++
				s := strings.TrimLeft(t.Format(layout), "0 ")
				if s == "" {
					s = "0"
				}
				out.WriteString(s)
				continue
			}
		}
		switch layout, ok := layouts[format[i]]; {
		case format[i] == 'f':
			fmt.Fprintf(&out, "%06d", t.Nanosecond()/1000)
		case ok:
			out.WriteString(t.Format(layout))
		case format[i] == '%':
			out.WriteByte('%')
		default:
			out.WriteByte('%')
			out.WriteByte(format[i])
		}
	}
	return out.String()
}
