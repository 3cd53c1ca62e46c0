package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Record is what was seen of one request from outside. All times are of one
// monotonic clock.
type Record struct {
	// Due is when the load model wanted the request sent; Sent is when the client
	// began to send it. They differ by the wait for a free client slot
	// (--max-concurrency) and by the client's own lateness.
	Due, Sent time.Time
	// FirstEvent is the first event with choices: vLLM's first token, even if it
	// only carries a role. FirstText is the first whose text is not empty, or
	// FirstEvent if there is no text at all. LastEvent is the last with choices.
	FirstEvent, FirstText, LastEvent time.Time
	// ITL are the gaps between events with choices, from FirstText on. An event
	// with several tokens makes one gap.
	ITL []time.Duration
	// InputTokens and OutputTokens are from usage; Estimated says that the server
	// sent none and OutputTokens counts events.
	InputTokens, OutputTokens int
	Estimated                 bool
	Text                      string // content, with reasoning where it came
	Finish                    string // finish_reason
	// Err says why the request failed; empty: it did not.
	Err string

	done  bool // [DONE] was seen
	hasIn bool
	// onEvent, if set, is told of each event with choices as it arrives.
	onEvent func(at time.Time)
}

// TTFT is the time to first text from sending.
func (r *Record) TTFT() time.Duration { return r.FirstText.Sub(r.Sent) }

// TTFTEvent is the time to first token as vLLM's client counts it.
func (r *Record) TTFTEvent() time.Duration { return r.FirstEvent.Sub(r.Sent) }

// Latency is the time from sending to the last event with choices.
func (r *Record) Latency() time.Duration { return r.LastEvent.Sub(r.Sent) }

// Queued is the time that the request waited in the client.
func (r *Record) Queued() time.Duration { return r.Sent.Sub(r.Due) }

// TPOT is the mean time per output token after the first, and false if there is
// no token after the first.
func (r *Record) TPOT() (time.Duration, bool) {
	if r.OutputTokens < 2 {
		return 0, false
	}
	return (r.Latency() - r.TTFT()) / time.Duration(r.OutputTokens-1), true
}

// streamEvent is what is read of an event of either API.
type streamEvent struct {
	Choices []struct {
		Text  string `json:"text"`
		Delta struct {
			Content          string `json:"content"`
			Reasoning        string `json:"reasoning"`
			ReasoningContent string `json:"reasoning_content"`
		} `json:"delta"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
	} `json:"usage"`
	Error json.RawMessage `json:"error"`
}

// event books an event that was read at the given time. An error ends the
// request: a server that reports one after its 200 has failed, whatever text it
// sent before.
func (r *Record) event(at time.Time, data []byte) error {
	if string(data) == "[DONE]" {
		r.done = true
		return nil
	}
	var e streamEvent
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("malformed event: %w", err)
	}
	if len(e.Error) > 0 && string(e.Error) != "null" {
		return errors.New("error in the stream: " + errorMessage(data))
	}
	// The last usage counts: servers that send it with every event count upwards.
	if e.Usage != nil {
		r.InputTokens, r.OutputTokens, r.hasIn = e.Usage.PromptTokens, e.Usage.CompletionTokens, true
	}
	if len(e.Choices) == 0 {
		return nil
	}
	// Requests ask for one choice, so the first is all there is.
	c := &e.Choices[0]
	text := c.Text + c.Delta.Reasoning + c.Delta.ReasoningContent + c.Delta.Content
	if c.FinishReason != "" {
		r.Finish = c.FinishReason
	}
	if r.FirstEvent.IsZero() {
		r.FirstEvent = at
	}
	switch {
	case !r.FirstText.IsZero():
		r.ITL = append(r.ITL, at.Sub(r.LastEvent))
	case text != "":
		r.FirstText = at
	}
	r.LastEvent = at
	r.Text += text
	if r.onEvent != nil {
		r.onEvent(at)
	}
	return nil
}

// finish closes the books at the end of the stream.
func (r *Record) finish() error {
	switch {
	case r.FirstEvent.IsZero():
		return errors.New("the stream held no text")
	case !r.done && r.Finish == "":
		return errors.New("the stream ended early")
	}
	if r.FirstText.IsZero() {
		r.FirstText = r.FirstEvent
	}
	if !r.hasIn {
		r.Estimated = true
		r.OutputTokens = len(r.ITL) + 1
	}
	return nil
}

// errorMessage returns the message of an error body, without the control characters
// with which a server could drive the terminal.
func errorMessage(body []byte) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return '·'
		}
		return r
	}, rawMessage(body))
}

// rawMessage returns the message of an error body of any of the known shapes, or its
// beginning.
func rawMessage(body []byte) string {
	var flat struct {
		Message string          `json:"message"`
		Detail  string          `json:"detail"`
		Error   json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &flat) == nil {
		var nested struct {
			Message string `json:"message"`
		}
		var plain string
		switch {
		case json.Unmarshal(flat.Error, &nested) == nil && nested.Message != "":
			return nested.Message
		case json.Unmarshal(flat.Error, &plain) == nil && plain != "":
			return plain
		case flat.Message != "":
			return flat.Message
		case flat.Detail != "":
			return flat.Detail
		}
	}
	const limit = 200 // enough to recognise a page of a proxy
	if len(body) > limit {
		body = body[:limit]
	}
	return string(body)
}
