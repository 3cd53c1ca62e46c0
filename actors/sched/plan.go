package sched

import "time"

// StepID counts the steps of one epoch from 1.
type StepID uint64

// SeqID names a sequence; ids are never reused.
type SeqID uint64

// Limits says when a sequence's output ends. It is immutable.
type Limits struct {
	// MaxTokens is the largest number of output tokens; 0 computes the prompt
	// and generates nothing.
	MaxTokens int
	// MinTokens is the number of output tokens before which stop ids do not end
	// the output.
	MinTokens int
	// Stop holds the ids that end the output: end-of-sequence unless ignored,
	// and the request's stop_token_ids.
	Stop []int32
}

// Finish says whether and how a token ends a sequence.
type Finish uint8

// The ways in which the Scheduler sees an end. A stop string is seen by the
// Detokenizer only.
const (
	NotFinished Finish = iota
	FinishStop
	FinishLength
)

// finish judges the token that makes a sequence's output n tokens long. It is
// the one rule of both the Scheduler and Bind.
func (l *Limits) finish(token int32, n int) Finish {
	if n > l.MinTokens {
		for _, s := range l.Stop {
			if s == token {
				return FinishStop
			}
		}
	}
	if n >= l.MaxTokens {
		return FinishLength
	}
	return NotFinished
}

// Row is one sequence's part of a step.
type Row struct {
	// Seq is the sequence.
	Seq SeqID
	// Start is the position of the first token computed, Len their number.
	Start, Len int
	// Tokens are the ids computed, [Len]; nil if the only one is not known yet.
	Tokens []int32
	// From is the row of the preceding step whose token is this row's only
	// input, or -1.
	From int
	// Sample says that the last position yields an output token.
	Sample bool
	// PromptLogits says that the logits of every prompt position are wanted.
	PromptLogits bool
	// Generated is the number of output tokens before this row's own, the
	// unknown input counted.
	Generated int
	// PromptLen is the number of prompt tokens.
	PromptLen int
	// Blocks is the block table of cache group 0; it covers Start+Len positions.
	Blocks []int32
	// Limits are the sequence's.
	Limits *Limits
	// Params is what Admit brought along for the device's sampler; the scheduler
	// never looks at it.
	Params any
}

// Plan is one step, proposed. It is immutable from Next until the core takes it
// back.
type Plan struct {
	// Epoch is the pipeline's incarnation, Version counts proposals.
	Epoch, Version uint64
	// After is the step whose tokens it continues.
	After StepID
	// Rows are in no particular order; indices are stable through Bind.
	Rows []Row
	// PrefillTokens and DecodeRows count its work.
	PrefillTokens, DecodeRows int
	// Expected is how long the step is likely to take.
	Expected time.Duration

	admits   []admission
	preempts []SeqID
	bypassed []SeqID
}

// admission is a waiting sequence's first row in a plan.
type admission struct {
	row  int
	hits int // blocks found in the prefix cache, the first ones of its table
}

// Result is what a step yielded for one row.
type Result struct {
	// Token is the sampled id, if the row samples.
	Token int32
	// Dropped says that Bind left the row out.
	Dropped bool
	// Failed says that the row's logits were not finite, or that the device had no
	// memory for the step: the sequence fails.
	Failed bool
	// NoMemory says that it was the memory.
	NoMemory bool
}

// Bind decides which rows of p run, given the results of step p.After (nil if
// that step's results were known when p was made): rows whose input ended its
// sequence, or failed, are left out. keep is reused if large enough. Pure.
func (p *Plan) Bind(results []Result, keep []bool) (rows []bool, kept int) {
	rows = append(keep[:0], make([]bool, len(p.Rows))...)
	for i := range p.Rows {
		r := &p.Rows[i]
		if r.From >= 0 {
			in := results[r.From]
			if in.Failed || in.Dropped || r.Limits.finish(in.Token, r.Generated) != NotFinished {
				continue
			}
		}
		rows[i] = true
		kept++
	}
	return rows, kept
}
