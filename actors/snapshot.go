package actors

import "waybill/kernels"

// Snapshot is what a console sees: one sample of the whole actor system. Times
// are milliseconds unless a name says otherwise; stamps are Unix milliseconds.
// docs/CONSOLE.md lists the fields; a test holds it against this file.
type Snapshot struct {
	At         float64 `json:"at" doc:"when the sample was taken"`
	IntervalMs float64 `json:"interval_ms" doc:"what rates and quantiles are over; 0 in a viewer's first sample"`
	UptimeS    float64 `json:"uptime_s" doc:"seconds since the engine started"`
	Model      string  `json:"model" doc:"the model's first name"`
	Ready      bool    `json:"ready" doc:"a new request would be served"`
	NotReady   string  `json:"not_ready" doc:"why not, or empty"`
	Actions    bool    `json:"actions" doc:"cancel and drain are allowed"`

	Places   PlacesView    `json:"places"`
	Pipeline []StageView   `json:"pipeline"`
	Actors   []ActorView   `json:"actors"`
	Restarts []RestartView `json:"restarts"`
	Stuck    []StuckView   `json:"stuck"`
	Requests RequestsView  `json:"requests"`
	Steps    []StepView    `json:"steps"`
	Memory   MemoryView    `json:"memory"`
	GPU      GPUView       `json:"gpu"`
	Runtime  RuntimeView   `json:"runtime"`
	Dropped  DroppedView   `json:"dropped"`
	Cost     CostView      `json:"cost"`
}

// PlacesView counts accepted sequences.
type PlacesView struct {
	Used    int64 `json:"used" doc:"accepted sequences that have not given their place back"`
	Limit   int64 `json:"limit" doc:"--max-num-queued-reqs"`
	Intake  int64 `json:"intake" doc:"of them accepted and not queued yet"`
	Waiting int64 `json:"waiting" doc:"waiting for the scheduler"`
	Running int64 `json:"running" doc:"in execution"`
}

// StageView is one stage of the pipeline: all actors of a kind, and the edge into
// it.
type StageView struct {
	Kind         string  `json:"kind" doc:"intake, scheduler, gpu-step, detokenizer or sse-writer"`
	Actors       int     `json:"actors" doc:"how many there are"`
	Depth        int     `json:"depth" doc:"messages waiting; for sse-writer the writers with bytes waiting"`
	OldestMs     float64 `json:"oldest_ms" doc:"how long the oldest of them has waited"`
	PerS         float64 `json:"per_s" doc:"messages handled per second; writes for sse-writer, steps for gpu-step"`
	WaitP50Us    float64 `json:"wait_p50_us" doc:"microseconds from posting a message to handling it, median; for gpu-step the gap before a step"`
	WaitP99Us    float64 `json:"wait_p99_us" doc:"the same, 99th percentile"`
	HandleP50Us  float64 `json:"handle_p50_us" doc:"microseconds to handle one, median; for sse-writer a write, for gpu-step a step"`
	HandleP99Us  float64 `json:"handle_p99_us" doc:"the same, 99th percentile"`
	Utilisation  float64 `json:"utilisation" doc:"share of the interval in which it worked, 0 to 1, of all its actors"`
	State        string  `json:"state" doc:"idle, or what is in hand"`
	StateSinceMs float64 `json:"state_since_ms" doc:"for how long"`
}

// ActorView is one long-lived actor.
type ActorView struct {
	Name        string  `json:"name" doc:"unique name"`
	Kind        string  `json:"kind" doc:"sort of actor"`
	Parent      string  `json:"parent" doc:"its supervisor; empty for the root"`
	Depth       int     `json:"depth" doc:"messages waiting"`
	OldestMs    float64 `json:"oldest_ms" doc:"how long the oldest has waited"`
	PerS        float64 `json:"per_s" doc:"messages handled per second"`
	Handled     int64   `json:"handled" doc:"messages handled since the start"`
	Refused     int64   `json:"refused" doc:"messages that found no place"`
	Dropped     int64   `json:"dropped" doc:"messages that an end left unhandled"`
	Panics      int64   `json:"panics" doc:"failures"`
	Restarts    int64   `json:"restarts" doc:"restarts after them"`
	WaitP50Us   float64 `json:"wait_p50_us" doc:"mailbox wait in microseconds, median"`
	WaitP99Us   float64 `json:"wait_p99_us" doc:"the same, 99th percentile"`
	HandleP50Us float64 `json:"handle_p50_us" doc:"handler time in microseconds, median"`
	HandleP99Us float64 `json:"handle_p99_us" doc:"the same, 99th percentile"`
	Utilisation float64 `json:"utilisation" doc:"share of the interval in a handler, 0 to 1"`
	State       string  `json:"state" doc:"idle, or the type of the message in hand"`
	StateMs     float64 `json:"state_ms" doc:"for how long"`
	AgeS        float64 `json:"age_s" doc:"seconds since its start"`
}

// RestartView is one failure of an actor and what followed.
type RestartView struct {
	At      float64 `json:"at" doc:"when"`
	Actor   string  `json:"actor" doc:"who failed"`
	Kind    string  `json:"kind" doc:"its sort"`
	Reason  string  `json:"reason" doc:"the panic's value"`
	Message string  `json:"message" doc:"type of the message in hand; empty: it failed while deciding"`
	Lost    string  `json:"lost" doc:"what clients lost by it"`
	Stack   string  `json:"stack" doc:"the goroutine's stack at the panic"`
}

// StuckView is a handler that ran longer than --stuck-after.
type StuckView struct {
	At      float64 `json:"at" doc:"when it was noticed"`
	Actor   string  `json:"actor" doc:"whose handler"`
	Message string  `json:"message" doc:"type of the message in hand"`
	ForMs   float64 `json:"for_ms" doc:"for how long it had run, at the last look"`
	Over    bool    `json:"over" doc:"it has ended since"`
	Stack   string  `json:"stack" doc:"its goroutine's stack then"`
}

// RequestsView lists sequences. Lists are cut at a server-side cap.
type RequestsView struct {
	Open    int           `json:"open" doc:"accepted and not booked yet, of which live lists the oldest"`
	Live    []RequestView `json:"live"`
	Recent  []RequestView `json:"recent"`
	Slowest []RequestView `json:"slowest"`
}

// RequestView is a sequence in a list.
type RequestView struct {
	RID       string  `json:"rid" doc:"request id, with /i if the request has several sequences"`
	State     string  `json:"state" doc:"intake, waiting, prefill, decode, or the reason of its end"`
	Stream    bool    `json:"stream" doc:"its answer is streamed"`
	Arrived   float64 `json:"arrived" doc:"when its first byte was read"`
	AgeMs     float64 `json:"age_ms" doc:"since then; for an ended one its end-to-end time"`
	TTFTMs    float64 `json:"ttft_ms" doc:"time to first token; 0: not yet, or not streamed"`
	Prompt    int64   `json:"prompt" doc:"prompt tokens"`
	Cached    int64   `json:"cached" doc:"of them found in the prefix cache"`
	Output    int64   `json:"output" doc:"output tokens so far"`
	Pending   int     `json:"pending_bytes" doc:"bytes that wait for its client"`
	LagMs     float64 `json:"lag_ms" doc:"for how long the oldest of them has waited"`
	Preempted int64   `json:"preemptions" doc:"times that it lost its blocks"`
}

// StepView is one engine step.
type StepView struct {
	Step      uint64  `json:"step" doc:"number within its epoch"`
	Epoch     uint64  `json:"epoch" doc:"incarnation of the pipeline"`
	At        float64 `json:"at" doc:"when it was launched"`
	Ms        float64 `json:"ms" doc:"launch to tokens on the host"`
	Rows      int     `json:"rows" doc:"sequences in it"`
	Prefill   int     `json:"prefill_tokens" doc:"prompt tokens computed"`
	Decode    int     `json:"decode_rows" doc:"sequences that decoded"`
	GapUs     float64 `json:"gap_us" doc:"microseconds of device idle before it although work was left"`
	IdleUs    float64 `json:"device_idle_us" doc:"the same by the device's own clock; -1: it has none, or the step followed no other"`
	GapActor  string  `json:"gap_actor" doc:"the actor that most of the gap was spent in"`
	Changed   bool    `json:"changed" doc:"its sequences differ from the step's before"`
	Predicted float64 `json:"predicted_ms" doc:"what the cost model expected"`
}

// MemoryView is the KV cache.
type MemoryView struct {
	BlocksTotal   int64   `json:"blocks_total" doc:"KV blocks"`
	BlocksUsed    int64   `json:"blocks_used" doc:"held by sequences"`
	BlocksCached  int64   `json:"blocks_cached" doc:"free, holding a prefix that may be reused"`
	BlocksFree    int64   `json:"blocks_free" doc:"free and empty"`
	BlockTokens   int     `json:"block_tokens" doc:"tokens in a block"`
	PrefixQueries int64   `json:"prefix_queries" doc:"prompt tokens looked up since the start"`
	PrefixHits    int64   `json:"prefix_hits" doc:"of them found"`
	Preemptions   int64   `json:"preemptions" doc:"since the start"`
	HitRate       float64 `json:"hit_rate" doc:"share found in the interval, 0 to 1; -1: none were looked up"`
}

// GPUView is what the driver tells of the devices.
type GPUView struct {
	Available bool      `json:"available" doc:"there is telemetry"`
	Reason    string    `json:"reason" doc:"why there is none"`
	Devices   []GPUInfo `json:"devices"`
}

// GPUInfo is one device's telemetry.
type GPUInfo = kernels.GPUInfo

// RuntimeView is the Go runtime and the process.
type RuntimeView struct {
	Goroutines  int64   `json:"goroutines" doc:"live goroutines"`
	Procs       int     `json:"gomaxprocs" doc:"threads that may run Go code at once"`
	SchedP50Us  float64 `json:"sched_p50_us" doc:"microseconds from runnable to running, median of the interval"`
	SchedP99Us  float64 `json:"sched_p99_us" doc:"the same, 99th percentile"`
	GCPauseP99  float64 `json:"gc_pause_p99_us" doc:"microseconds of stop-the-world pauses, 99th percentile of the interval"`
	GCCycles    int64   `json:"gc_cycles" doc:"collections since the start"`
	HeapBytes   int64   `json:"heap_bytes" doc:"bytes of live and unswept objects"`
	TotalBytes  int64   `json:"total_bytes" doc:"bytes that the runtime holds; KV memory and weights are not in it"`
	CPUSeconds  float64 `json:"cpu_seconds" doc:"processor time of Go code and runtime, as the runtime estimates it at collections"`
	GCCPUShare  float64 `json:"gc_cpu_share" doc:"of it in collections, 0 to 1"`
	Allocations int64   `json:"allocations" doc:"objects allocated since the start"`
}

// DroppedView counts what was refused or lost.
type DroppedView struct {
	Requests []CountView `json:"requests"`
	Messages []CountView `json:"messages"`
}

// CountView is a number with its reason.
type CountView struct {
	Reason string `json:"reason" doc:"what happened"`
	Count  int64  `json:"count" doc:"how often since the start"`
}

// CostView is what watching costs.
type CostView struct {
	Viewers    int     `json:"viewers" doc:"open consoles"`
	MaxViewers int     `json:"max_viewers" doc:"more are refused"`
	SamplesPS  float64 `json:"samples_per_s" doc:"samples taken per second"`
	MsPerS     float64 `json:"ms_per_s" doc:"milliseconds per second spent in sampling and encoding"`
	Bytes      int     `json:"bytes" doc:"size of the sample before this one"`
	Samples    int64   `json:"samples" doc:"samples taken since the start"`
}
