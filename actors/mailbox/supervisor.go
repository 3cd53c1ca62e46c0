package mailbox

import (
	"io"
	"log/slog"

	"github.com/asynkron/protoactor-go/actor"
)

// supervisor is the guardian of every actor: it asks the actor's OnFailure what
// to do. It runs on the failed actor's goroutine and replaces the library's
// "ten restarts, then silence".
type supervisor struct{ system *System }

// HandleFailure is called by protoactor with the failed actor suspended.
func (s *supervisor) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID,
	_ *actor.RestartStatistics, reason, message any) {
	r := s.system.byPID(child)
	if r == nil {
		sup.StopChildren(child)
		return
	}
	d := Restart
	if r.opts.OnFailure != nil {
		d = r.opts.OnFailure(Failure{
			Actor: r.opts.Name, Kind: r.opts.Kind,
			Reason: reason, Message: message, Stack: r.stats.lastStack,
		})
	}
	if d == Restart {
		r.stats.restarts.Add(1)
		sup.RestartChildren(child)
		return
	}
	sup.StopChildren(child)
}

// quietLogger drops the library's log: every event that matters reaches the
// engine by OnFailure and OnDrop.
func quietLogger(*actor.ActorSystem) *slog.Logger {
	return slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError + 1}))
}
