package actors

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"waybill/actors/waybill"
)

// Times and the wait in steps have three digits behind the point in the log.
func TestTheLogsWaitInStepsHasThreeDigits(t *testing.T) {
	if !waybill.Observing {
		t.Skip("a build without stamps")
	}
	b := &waybill.Waybill{RID: "r"}
	for m, at := range map[waybill.Milestone]int64{waybill.Arrived: 1_000_000, waybill.Tokenized: 2_000_000, waybill.Queued: 2_500_000, waybill.Scheduled: 9_123_456,
		waybill.FirstToken: 10_000_000, waybill.LastToken: 10_000_000, waybill.LastByte: 11_000_000} {
		b.Stamp(m, at)
	}
	b.WaitStepNs.Store(7_000_000) // 7.123456 ms of wait are 1.017636 of these
	b.End(waybill.Length, 10_000_000)
	split := b.Split()
	var out bytes.Buffer
	logSequence(slog.New(slog.NewTextHandler(&out, nil)), &Sequence{Bill: b}, &split)
	for _, want := range []string{"rid=r reason=length", " wait_ms=7.123 wait_steps=1.018\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the line lacks %q: %s", want, out.String())
		}
	}
}
