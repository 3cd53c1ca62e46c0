//go:build !linux

package bench

import (
	"context"
	"time"
)

// until waits for a moment, or for the context's end.
func until(ctx context.Context, at time.Time) {
	if wait := time.Until(at); wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}
