package actors

import (
	"fmt"
	"reflect"
	"sync"

	"waybill/actors/mailbox"
	"waybill/actors/waybill"
)

// restartLog keeps the last failures for the console's timeline.
type restartLog struct {
	mu    sync.Mutex // held for a change or a copy of the list
	list  []RestartView
	first int64 // number of the first in the list, counted from the first ever
}

// add books a failure and returns its number.
func (l *restartLog) add(f mailbox.Failure) int64 {
	v := RestartView{
		At: unixMs(waybill.Now()), Actor: f.Actor, Kind: f.Kind, Reason: fmt.Sprint(f.Reason), Stack: string(f.Stack),
	}
	if f.Message != nil {
		v.Message = reflect.TypeOf(f.Message).String()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.list = append(l.list, v); len(l.list) > restartsKept {
		l.list = l.list[1:]
		l.first++
	}
	return l.first + int64(len(l.list)) - 1
}

// lost says what clients lost by failure n.
func (l *restartLog) lost(n int64, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := n - l.first; i >= 0 {
		l.list[i].Lost = fmt.Sprintf(format, args...)
	}
}

// timeline returns a copy, newest first.
func (l *restartLog) timeline() []RestartView {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]RestartView, 0, len(l.list))
	for i := len(l.list) - 1; i >= 0; i-- {
		out = append(out, l.list[i])
	}
	return out
}
