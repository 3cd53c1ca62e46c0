package bench

import "context"

// Probe says how single requests are injected.
type Probe struct{}

func (o *Options) probe(ctx context.Context, c *client) error { return nil }
