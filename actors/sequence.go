package actors

import (
	"sync/atomic"

	"waybill/actors/mailbox"
	"waybill/actors/sched"
	"waybill/actors/waybill"
	"waybill/model/sampling"
)

// Sequence is one output of a request.
type Sequence struct {
	// ID is unique in the process.
	ID sched.SeqID
	// Index is its place in the answer's choices.
	Index int
	// Bill is its ledger.
	Bill *waybill.Waybill

	req   *Request
	shard *mailbox.Ref

	// Set by Intake before Admit.
	ids    []int32
	text   string // the prompt's text, if it is echoed
	hashes []uint64
	limits *sched.Limits
	params *sampling.Params

	// Owned by GPU-step.
	sampler *sampling.State

	// Owned by the Detokenizer.
	detok *detokState

	// With --console-show-content: the rendered prompt's beginning, written by
	// Intake, and the output's, written by the Detokenizer.
	shownPrompt string
	shownOutput []byte

	posted    atomic.Bool  // its Admit was posted: a rebuild admits it again
	place     atomic.Bool  // true while it holds a place
	tokens    atomic.Int64 // queued prompt tokens that it counts for, estimated until tokenized
	delivered atomic.Bool  // its terminal event was given to the writer
	failure   atomic.Pointer[Failure]
	group     uint64 // id of the first output of its prompt, if that has several
}

// sibling reports whether the sequence may have waited for another's prompt.
func (s *Sequence) sibling() bool { return s.group != 0 && s.group != uint64(s.ID) }

// Request returns the request that the sequence belongs to.
func (s *Sequence) Request() *Request { return s.req }

// reset forgets what an earlier pipeline did with a sequence that is admitted
// again. It has no token yet.
func (s *Sequence) reset() { s.sampler = sampling.NewState(s.params, s.ids) }
