package actors

import (
	"strings"
	"sync/atomic"

	"waybill/actors/mailbox"
	"waybill/actors/sched"
	"waybill/actors/waybill"
	"waybill/model/sampling"
	"waybill/model/tokenizer"
)

// intakeActor renders and tokenizes requests in slices of at most intakeSlice,
// round-robin, and admits their sequences. It is one of a pool.
type intakeActor struct {
	engine *Engine
	ref    *mailbox.Ref
	load   atomic.Int64 // requests in hand or on the way
	works  []*intakeJob // in order of their next slice
	// large is the only job that may merge a piece which takes much memory, nil if none does.
	large *intakeJob
}

// intakeJob is a request that Intake is working on.
type intakeJob struct {
	req    *Request
	prompt int // the prompt in hand
	enc    *tokenizer.Encoding
	text   string
}

// Receive takes a request in; the work is done slice by slice in Drained.
func (a *intakeActor) Receive(m any) {
	if w, ok := m.(*intakeWork); ok {
		a.works = append(a.works, &intakeJob{req: w.req})
	}
}

// Drained works on the next request for one slice.
func (a *intakeActor) Drained() {
	if len(a.works) == 0 {
		return
	}
	j := a.works[0]
	done := a.slice(j)
	// Shifted and not cut: the array would keep jobs, and with them prompts of
	// megabytes, long after their end.
	last := len(a.works) - 1
	copy(a.works, a.works[1:])
	if done && a.large == j {
		a.large = nil
	}
	if a.works[last] = j; done {
		a.works[last] = nil
		a.works = a.works[:last]
		a.load.Add(-1)
	}
	if len(a.works) > 0 {
		a.ref.Tell(intakeMore{})
	}
}

// slice works on j for at most intakeSlice and reports whether Intake is done
// with it.
func (a *intakeActor) slice(j *intakeJob) (done bool) {
	a.engine.fault("intake")
	deadline := waybill.Now() + int64(intakeSlice)
	for {
		if j.over() {
			a.engine.dropped(j.req)
			return true
		}
		if j.enc == nil {
			if f := a.open(j); f != nil {
				if j.over() {
					continue // its client is gone: that ended the rendering
				}
				a.engine.refuse(j.req, f)
				return true
			}
		}
		for {
			if !a.turn(j) {
				return false
			}
			if j.enc.Advance(intakeUnits) {
				break
			}
			// The rest of a prompt that is too long already is not worth its time.
			if n := len(j.enc.IDs()); n > a.engine.cfg.MaxModelLen {
				a.engine.refuse(j.req, a.engine.tooLong("the prompt has at least %d tokens", n))
				return true
			}
			if waybill.Now() > deadline {
				return false
			}
		}
		if f := a.close(j); f != nil {
			a.engine.refuse(j.req, f)
			return true
		}
		if j.prompt++; j.prompt == len(j.req.Prompts) {
			a.admit(j.req)
			return true
		}
		if waybill.Now() > deadline {
			return false
		}
	}
}

// turn reports whether j may go on with its text. One request at a time merges a piece
// that takes much memory: a queue full of them, each with a part done, would take gigabytes.
func (a *intakeActor) turn(j *intakeJob) bool {
	switch {
	case !j.enc.Large():
		if a.large == j {
			a.large = nil
		}
		return true
	case a.large == nil:
		a.large = j
	}
	return a.large == j
}

// over reports whether all sequences of the request have ended already.
func (j *intakeJob) over() bool {
	for _, s := range j.req.seqs {
		if s.Bill.Reason() == waybill.Running {
			return false
		}
	}
	return true
}

// open renders the prompt in hand and starts its tokenization.
func (a *intakeActor) open(j *intakeJob) *Failure {
	p := &j.req.Prompts[j.prompt]
	enc := p.Encode
	j.text = p.Text
	if p.Render != nil {
		text, plain, err := p.Render(j.over)
		if err != nil {
			return &Failure{Status: 400, Type: "BadRequestError", Param: "messages", Message: err.Error()}
		}
		j.text, enc.Plain = text, plain
	}
	now := waybill.Now()
	for _, s := range j.seqs() {
		s.Bill.Stamp(waybill.Rendered, now)
	}
	a.engine.fault("tokenize")
	text := j.text
	if p.IDs != nil {
		text = ""
		enc = EncodeOptions{}
	}
	// Megabytes without a border are one piece, which takes 30 times its bytes to merge
	// and gives no token before its end.
	if n := a.engine.cfg.MaxModelLen; a.engine.tok.MustExceed(text, n) {
		return a.engine.tooLong("the prompt has at least %d tokens", n+1)
	}
	j.enc = a.engine.tok.Begin(text, enc)
	return nil
}

// seqs returns the sequences of the prompt in hand.
func (j *intakeJob) seqs() []*Sequence {
	return j.req.seqs[j.prompt*j.req.N : (j.prompt+1)*j.req.N]
}

// close checks the ids of the prompt in hand and completes its sequences.
func (a *intakeActor) close(j *intakeJob) *Failure {
	e, r := a.engine, j.req
	ids := j.enc.IDs()
	if p := &r.Prompts[j.prompt]; p.IDs != nil {
		ids = p.IDs
		if r.Echo {
			j.text = e.tok.Decode(ids, !r.KeepSpecial)
		}
	}
	j.enc = nil
	if len(ids) == 0 {
		return emptyPrompt(r, j.prompt)
	}
	maxTokens, f := e.checkLength(r, len(ids))
	if f != nil {
		return f
	}
	size := e.cfg.BlockSize
	hashes := make([]uint64, 0, len(ids)/size)
	for i := 0; (i+1)*size <= len(ids); i++ {
		hashes = append(hashes, sched.HashBlock(ids[i*size:(i+1)*size]))
	}
	stop := append([]int32(nil), r.StopIDs...)
	if !r.IgnoreEOS {
		stop = append(stop, e.eos...)
	}
	limits := &sched.Limits{MaxTokens: maxTokens, MinTokens: r.Sampling.MinTokens, Stop: stop}
	o := r.Sampling
	o.StopIDs = stop
	params, err := sampling.New(o, e.model.Config().VocabSize)
	if err != nil {
		return &Failure{Status: 400, Type: "BadRequestError", Message: err.Error()}
	}
	now := waybill.Now()
	for i, s := range j.seqs() {
		p := params.WithSeed(o.Seed + uint64(i))
		s.ids, s.hashes, s.limits, s.params = ids, hashes, limits, p
		s.sampler = sampling.NewState(p, ids)
		if r.Echo {
			s.text = j.text
		}
		if e.cfg.ShowContent && i == 0 {
			s.shownPrompt = e.shownPrompt(j.text, ids)
		}
		e.places.counted(s, int64(len(ids)))
		s.Bill.PromptTokens.Store(int64(len(ids)))
		s.Bill.Stamp(waybill.Tokenized, now)
	}
	return nil
}

// shownPrompt returns the beginning of a prompt for the console.
func (e *Engine) shownPrompt(text string, ids []int32) string {
	if text == "" {
		text = e.tok.Decode(ids[:min(len(ids), shownBytes)], false)
	}
	return strings.ToValidUTF8(text[:min(len(text), shownBytes)], "")
}

// admit posts all sequences of a request to the Scheduler.
func (a *intakeActor) admit(r *Request) {
	a.engine.fault("admit")
	for i, s := range r.seqs {
		if r.N > 1 {
			s.group = uint64(r.seqs[i-i%r.N].ID)
		}
	}
	for _, s := range r.seqs {
		a.engine.admit(s)
	}
}
