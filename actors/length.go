package actors

import "fmt"

// checkLength returns the output bound of a request whose prompt has n tokens, at
// least one.
func (e *Engine) checkLength(r *Request, n int) (maxTokens int, f *Failure) {
	limit := e.cfg.MaxModelLen
	switch {
	case n > limit, n == limit && r.MaxTokens != 0:
		return 0, e.tooLong("the prompt has %d tokens", n)
	case r.MaxTokens < 0, r.FitMaxTokens && r.MaxTokens > limit-n:
		return limit - n, nil
	case r.MaxTokens > limit-n: // n + MaxTokens may not fit an int
		return 0, e.tooLong("the prompt has %d tokens and max_tokens is %d", n, r.MaxTokens)
	}
	return r.MaxTokens, nil
}

// tooLong refuses a prompt, or a prompt and the output asked for.
func (e *Engine) tooLong(format string, args ...any) *Failure {
	return &Failure{
		Status: 400, Type: "BadRequestError", Param: "prompt", Code: "context_length_exceeded",
		Message: fmt.Sprintf(format, args...) +
			fmt.Sprintf("; the model's context is %d tokens, which must hold the prompt and the output", e.cfg.MaxModelLen),
	}
}

// emptyPrompt refuses a prompt without a token; of several it names the one.
func emptyPrompt(r *Request, i int) *Failure {
	name := "the prompt"
	if len(r.Prompts) > 1 {
		name = fmt.Sprintf("prompt %d of %d (counted from 0)", i, len(r.Prompts))
	}
	return &Failure{Status: 400, Type: "BadRequestError", Param: "prompt", Message: name + " is empty: it must hold at least one token"}
}
