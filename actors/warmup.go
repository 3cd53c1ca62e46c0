package actors

import (
	"fmt"
	"time"
)

// calibration is a measured warm-up step.
type calibration struct {
	start, tokens int
	elapsed       time.Duration
}

// warmer is an executor that can run steps for nobody.
type warmer interface {
	warmSteps() [][2]int
	warm(start, tokens, maxLen int) (time.Duration, error)
}

// warmUp runs a few steps before anybody is served: memory is touched, workers
// are awake, and the cost model knows the machine.
func (e *Engine) warmUp() error {
	x, ok := e.exec.(warmer)
	if !ok {
		return nil
	}
	if d, ok := e.exec.(*deviceExecutor); ok {
		if err := d.record(e.cfg.MaxSeqs); err != nil {
			return err
		}
	}
	for _, step := range x.warmSteps() {
		start, tokens := step[0], step[1]
		if tokens > e.cfg.MaxBatchedTokens {
			continue
		}
		d, err := x.warm(start, tokens, e.cfg.MaxModelLen)
		if err != nil {
			return fmt.Errorf("actors: warm-up: %w", err)
		}
		if d > 0 {
			e.calibrated = append(e.calibrated, calibration{start, tokens, d})
		}
	}
	return nil
}
