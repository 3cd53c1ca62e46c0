package telemetry

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"waybill/kernels"
)

func TestReadingsAreSharedForASecond(t *testing.T) {
	var reads atomic.Int64
	var clock atomic.Int64
	p := &poll{
		now:  func() time.Time { return time.Unix(100, clock.Load()) },
		read: func() ([]kernels.GPUInfo, error) { return []kernels.GPUInfo{{Index: int(reads.Add(1))}}, nil },
	}
	for range 5 {
		if d, err := p.get(); err != nil || len(d) != 1 || d[0].Index != 1 {
			t.Fatalf("reading %+v, %v, want the first one", d, err)
		}
	}
	clock.Store(int64(maxAge))
	if d, err := p.get(); err != nil || d[0].Index != 2 {
		t.Errorf("after %v: %+v, %v, want a new reading", maxAge, d, err)
	}
}

func TestAHangingDriverHoldsNobodyUp(t *testing.T) {
	var reads atomic.Int64
	open := make(chan struct{})
	p := &poll{now: time.Now, read: func() ([]kernels.GPUInfo, error) {
		reads.Add(1)
		<-open
		return []kernels.GPUInfo{{Name: "late"}}, nil
	}}
	for range 3 {
		if d, err := p.get(); err == nil || !strings.Contains(err.Error(), "has not answered") {
			t.Fatalf("while it hangs: %+v, %v", d, err)
		}
	}
	if n := reads.Load(); n != 1 {
		t.Errorf("%d readings run, want the one that hangs", n)
	}
	close(open)
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		d, err := p.get()
		if err == nil && len(d) == 1 && d[0].Name == "late" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after it answered: %+v, %v", d, err)
		}
	}
}

func TestAFailedReadingIsTriedAgain(t *testing.T) {
	fail, clock := true, time.Unix(1, 0)
	p := &poll{now: func() time.Time { return clock }, read: func() ([]kernels.GPUInfo, error) {
		if fail {
			return nil, errors.New("gone")
		}
		return []kernels.GPUInfo{{}}, nil
	}}
	if _, err := p.get(); err == nil {
		t.Fatal("no error")
	}
	fail, clock = false, clock.Add(maxAge)
	if d, err := p.get(); err != nil || len(d) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
}
