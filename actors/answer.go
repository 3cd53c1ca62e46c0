package actors

import "waybill/actors/waybill"

// Failure is an error that a client gets.
type Failure struct {
	// Status is the HTTP status if no header was sent yet.
	Status int
	// Type, Param, Code and Message fill the error object.
	Type, Param, Code, Message string
}

// Error returns the message.
func (f *Failure) Error() string { return f.Message }

// Usage counts a request's tokens.
type Usage struct{ Prompt, Cached, Completion int }

// TokenLogprobs describes a token and its best alternatives under the raw logits.
type TokenLogprobs struct {
	// ID is the token, Logprob its natural log-probability, Rank its place from 1.
	ID      int32
	Logprob float32
	Rank    int
	// Top holds the best tokens, best first, as many as were asked for.
	Top []TokenLogprob
	// Missing says that there is no probability: the prompt's first token.
	Missing bool
}

// Delta is what a step adds to one choice.
type Delta struct {
	// Index is the choice.
	Index int
	// First says that it is the choice's first.
	First bool
	// Text is new text; valid only during the call.
	Text []byte
	// IDs are the output tokens since the last delta; Logprobs describe them, if
	// asked for. Valid only during the call.
	IDs      []int32
	Logprobs []TokenLogprobs
	// PromptIDs and PromptLogprobs come with the first delta.
	PromptIDs      []int32
	PromptLogprobs []TokenLogprobs
	// Finish is Running until the last delta.
	Finish waybill.Reason
	// StopString or StopID says what stopped it; StopID is -1 if none.
	StopString string
	StopID     int32
	// Usage counts the tokens so far: this prompt's, and this choice's output.
	Usage Usage
	// Bill is the choice's ledger.
	Bill *waybill.Waybill
}

// Choice is one finished output of a collected answer: the sum of its deltas, whose
// fields these are.
type Choice struct {
	Text           []byte
	IDs            []int32
	Logprobs       []TokenLogprobs
	PromptIDs      []int32
	PromptLogprobs []TokenLogprobs
	Finish         waybill.Reason
	StopString     string
	StopID         int32
	Usage          Usage
	Bill           *waybill.Waybill
}

// Encoder turns deltas into the bytes of a streamed answer. It is called by one
// goroutine at a time and appends to dst.
type Encoder interface {
	// AppendDelta appends the event of d.
	AppendDelta(dst []byte, d *Delta) []byte
	// AppendEnd appends what follows the last delta of all choices.
	AppendEnd(dst []byte, total Usage, seqs []*Sequence) []byte
	// AppendFailure appends an error event and the end of the stream.
	AppendFailure(dst []byte, f *Failure) []byte
	// AppendKeepAlive appends a comment.
	AppendKeepAlive(dst []byte) []byte
}
