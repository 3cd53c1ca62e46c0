package chat

import (
	"errors"
	"fmt"

	"github.com/ardanlabs/jinja"
)

// Limits on what a template may do in one rendering. The template library has no
// hooks, so the source is instrumented: calls that count are put into the bodies of
// loops and macros, around the values of {% set %} and around what {{ }} prints. What
// one expression may allocate between two of these calls is bounded by its form.
const (
	// MaxSteps is the sum of all iterations and macro calls. The longest of 22 released
	// templates takes some 20 per message.
	MaxSteps = 1 << 18
	// maxText is the literal text that a rendering may come by, in bytes, taken branches
	// or not: 4,096 messages through a loop of 16 KB.
	maxText = 64 << 20
	// maxNesting is how deep macros may call each other: it bounds the stack.
	maxNesting = 100
	// maxSource is the size of a template in bytes; released ones have up to 20 KB.
	maxSource = 256 << 10
	// maxBrackets is the nesting of brackets in one tag: it bounds the parser's stack.
	maxBrackets = 64
	// maxGrowth bounds how much larger than its operands one tag's result can be.
	maxGrowth = 256
	// repeatGrowth is what a repetition counts for in it; the library itself bounds one
	// to 64 MiB.
	repeatGrowth = 64
	// valueSlack is what a template's variable may hold beyond four times the request,
	// in bytes of text.
	valueSlack = 1 << 20
)

// reserved begins the names of the counting functions; no template may use it.
const reserved = "waybill_"

// budget counts the work of one rendering.
type budget struct {
	steps, out, text, nesting int
	maxValue, maxOut          int
	cancelled                 func() bool
}

var errCancelled = errors.New("the client is gone")

// step counts a pass through a body with text bytes of literal text.
func (b *budget) step(text int) error {
	b.steps++
	if b.text += text; b.text > maxText {
		return fmt.Errorf("more than %d bytes of the template's own text", maxText)
	}
	if b.steps > MaxSteps {
		return fmt.Errorf("more than %d steps", MaxSteps)
	}
	if b.cancelled != nil && b.steps&63 == 0 && b.cancelled() {
		return errCancelled
	}
	return nil
}

// functions returns what instrument puts into a template.
func (b *budget) functions() map[string]jinja.Value {
	call := func(f func(args []jinja.Value) (jinja.Value, error)) jinja.Value {
		return jinja.NewCallable("limit", func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) { return f(args) })
	}
	no := jinja.NewBool(false)
	return map[string]jinja.Value{
		reserved + "step": call(func(args []jinja.Value) (jinja.Value, error) { return no, b.step(int(args[0].AsInt())) }),
		reserved + "enter": call(func(args []jinja.Value) (jinja.Value, error) {
			if b.nesting++; b.nesting > maxNesting {
				return no, fmt.Errorf("macros nested more than %d deep", maxNesting)
			}
			return no, b.step(int(args[0].AsInt()))
		}),
		reserved + "leave": call(func([]jinja.Value) (jinja.Value, error) { b.nesting--; return no, nil }),
		reserved + "held": call(func(args []jinja.Value) (jinja.Value, error) {
			if n := b.size(args[0], 0); n > b.maxValue {
				return no, fmt.Errorf("a value of more than %d bytes", b.maxValue)
			}
			return args[0], b.step(0)
		}),
		reserved + "out": call(func(args []jinja.Value) (jinja.Value, error) {
			return args[0], b.wrote(b.size(args[0], 0))
		}),
	}
}

// wrote counts n bytes of output.
func (b *budget) wrote(n int) error {
	if b.out += n; b.out > b.maxOut {
		return fmt.Errorf("more than %d bytes of output", b.maxOut)
	}
	return nil
}

// size returns about how many bytes v prints as, or more than any limit once it is
// over one. Work on large lists counts as steps.
func (b *budget) size(v jinja.Value, depth int) int {
	switch {
	case v.IsString():
		return len(v.AsString())
	case depth > MaxDepth:
		return b.maxValue + b.maxOut
	case v.IsList():
		n := 0
		for i, item := range v.AsList().Items {
			if n += 2 + b.size(item, depth+1); n > b.maxValue+b.maxOut {
				break
			}
			if i&63 == 63 {
				b.steps++
			}
		}
		return n
	case v.IsDict():
		n := 0
		for _, key := range v.AsDict().Keys {
			if n += 4 + len(key) + b.size(v.AsDict().Data[key], depth+1); n > b.maxValue+b.maxOut {
				break
			}
		}
		return n
	}
	return 8
}
