package kernels

// Draw says how the token of a row of logits is chosen, for a device that can do it.
// The meaning of every field, and the order in which they act, is that of package
// model/sampling: banned tokens, biases, penalties, then the largest logit or a draw.
type Draw struct {
	// On tells that the device is to choose; else it names the largest logit only.
	On bool
	// Scale is what logits are multiplied by, one over the temperature; 0 takes the
	// largest.
	Scale float32
	// TopK keeps the k best and their equals; 0 keeps all.
	TopK int
	// TopP keeps the best that reach this share; 1 keeps all.
	TopP float64
	// MinP drops tokens less likely than this share of the likeliest.
	MinP float32
	// Uniform is the random number of the draw, in [0, 1).
	Uniform float64
	// Repetition, Frequency and Presence are the penalties of Seen.
	Repetition, Frequency, Presence float32
	// Banned cannot be chosen; none occurs twice.
	Banned []int32
	// Bias is added to logits; no token occurs twice.
	Bias []Bias
	// Seen lists the tokens that penalties fall on; none occurs twice.
	Seen []Seen
	// Logprobs is the number of best tokens reported under the raw logits, up to
	// MaxLogprobs; 0 reports the chosen one's alone, negative nothing.
	Logprobs int
}

// MaxLogprobs is the most alternatives that a token can be reported with. It bounds
// the work per token; vLLM's default limit is 20.
const MaxLogprobs = 1024

// Bias is added to one token's logit.
type Bias struct {
	ID    int32
	Value float32
}

// Seen is a token of the prompt or the output.
type Seen struct {
	ID int32
	// Count is how often it occurs in the output; 0 if only in the prompt.
	Count int32
}

// Picked is what a step yields for one row of logits.
type Picked struct {
	// Token is the id of the largest logit, the lowest among equals, or what the row's
	// Draw chose: -1 if it allows none.
	Token int32
	// Finite tells that no logit of the row is an infinity or NaN.
	Finite bool
	// Drawn tells that Token is the Draw's.
	Drawn bool
	// Logprob is the token's log-probability under the raw logits, Rank its place
	// there, from 1, and Top the best tokens, if the Draw asked for them.
	Logprob float32
	Rank    int32
	Top     []TokenLogprob
}

// TokenLogprob is a token with the logarithm of its probability.
type TokenLogprob struct {
	Logprob float32
	ID      int32
}
