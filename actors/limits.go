package actors

import "time"

// Named limits of the actors. Each says why it has its value; reaching one is
// counted or answered, and tested.
const (
	// intakeSlice bounds how long Intake works for one request before it looks
	// at its ring: a long prompt delays a short one by at most this.
	intakeSlice = time.Millisecond
	// intakeUnits is the tokenizer's work between two looks at the clock; one
	// unit is below 1 µs.
	intakeUnits = 200
	// controlRing is the places of the Supervisor's and GPU-step's rings, which hold a
	// few control messages at most, and what other rings have for such messages.
	controlRing = 64
	// tokenRing is how many steps' tokens may wait for a Detokenizer, besides what else
	// its ring has places for. Beyond it the Scheduler waits, and steps with it: a
	// token is never dropped.
	tokenRing = 64
	// tokenPause is how long the Scheduler then sleeps between two looks.
	tokenPause = 50 * time.Microsecond
	// fullPause is how long a message waits that found no place in a ring: its actor has
	// stood still for hundreds of requests, so it comes on time all the same.
	fullPause = 10 * time.Millisecond
	// ledgerRing holds waybills that ended while the Ledger was busy. A full
	// ring drops the waybill and counts it; it never holds a request.
	ledgerRing = 4096
	// queuedLines bounds dump and log lines that wait for a slow stderr. More are
	// dropped and counted.
	queuedLines = 1024
	// linePatience is how long the end of the process waits for those lines: a
	// pipe with a living reader takes them all in milliseconds.
	linePatience = time.Second
	// writerLimit bounds the bytes of one response that wait for its client. At
	// 256 KiB a reader may be thousands of tokens behind before it is cut off.
	writerLimit = 256 << 10
	// handoffPatience, and handoffPerRow for each of them, is how long GPU-step
	// leaves its core to the writers of the last step before it computes the next.
	// Writers that are not through by then share the cores with the computation: at
	// 32 streams on 2 cores, whose writers take 0.7 ms, the last one was 5 ms late
	// with 0.3 ms for all of them (p99 13 ms), and is 0.7 ms late so (p99 1.2 ms).
	handoffPatience = 300 * time.Microsecond
	handoffPerRow   = 30 * time.Microsecond
	// spinTime is how long a long-lived actor polls before it parks while work
	// is under way, on machines with cores to spare.
	spinTime = 30 * time.Microsecond
	// maxFailures within failureWindow end the process.
	maxFailures   = 3
	failureWindow = time.Minute
	// rebuildPatience is how long a rebuild waits for the old GPU-step to end
	// before it takes fresh KV memory.
	rebuildPatience = 5 * time.Second
	// recentSteps is how many steps are remembered to express waits in steps.
	recentSteps = 256
	// rateWindow is how many returned places the service rate is measured over: some
	// seconds of a busy server.
	rateWindow = 64
	// minRetryAfter is Retry-After's unit; maxRetryAfter is the longest wait that a
	// refused client is told, however slow the server is: its estimate is not worth
	// more, and clients that obey it must come back within a load balancer's patience.
	minRetryAfter = time.Second
	maxRetryAfter = time.Minute
	// laneSteps is how many steps the console's lane holds between two samples:
	// at 1 ms a step a second's worth fits nearly twice.
	laneSteps = 2048
	// recentRequests ended sequences and the slowest slowRequests of the last
	// slowFor are kept for the console: a waybill, below 1 KB with few prefill chunks
	// and preemptions, some 16 KB with waybill.maxEpisodes of them, and twice
	// shownBytes with content.
	recentRequests = 256
	slowRequests   = 32
	slowFor        = time.Hour
	// shownBytes bounds the prompt and the output that are kept of a sequence with
	// --console-show-content.
	shownBytes = 16 << 10
	// recentShown of the recent sequences are in every sample; all are found by id.
	recentShown = 50
	// samplePatience is how long a single sample waits for the Inspector.
	samplePatience = 5 * time.Second
	// costWindow is how many samples the cost of watching is averaged over.
	costWindow = 10
	// liveRequests bounds the list of sequences under way in one sample.
	liveRequests = 200
	// restartsKept and stucksKept bound the timelines of failures and of stuck
	// handlers.
	restartsKept = 64
	stucksKept   = 32
	// sampleInterval is the time between two samples while somebody watches.
	sampleInterval = time.Second
	// maxViewers bounds open consoles: each takes a connection and a copy of every
	// sample.
	maxViewers = 50
	// stuckAfter is how long a handler may run before it counts as stuck: no
	// handler but a step takes 10 ms, and a step is cut to 50 ms of prompt.
	stuckAfter = time.Second
	// stuckLook is the time between two looks for stuck handlers.
	stuckLook = 250 * time.Millisecond
	// stallAfter is the age of a step in flight from which the engine counts as
	// hung: the longest step of a slow CPU is below a second.
	stallAfter = 30 * time.Second
)
