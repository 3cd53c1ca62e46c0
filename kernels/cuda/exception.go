//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"waybill/kernels/cuda/coredump"
	"waybill/kernels/cuda/driver"
)

// exceptions hears of kernels that the device stops. An error of the driver alone says
// neither which kernel it was nor even which step; a core dump does, for nothing as long
// as all goes well. The driver stops the device, writes the dump into memory that is
// watched, and then lets the device go on and reports no error, so whoever waits for a
// step must ask.
type exceptions struct {
	begun atomic.Bool
	// found is closed when err, the exception, is known.
	found chan struct{}
	err   error
}

// dumpTime is how long a dump may take to be written: some 0.1 s were seen.
const dumpTime = 10 * time.Second

// watchExceptions starts to listen, once for the process: the driver has one setting for
// all contexts that are made later. Where it cannot be had, exceptions are the driver's
// own errors.
var watchExceptions = sync.OnceValues(func() (*exceptions, error) {
	fd, err := unix.MemfdCreate("gpu-exception", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory for core dumps: %w", err)
	}
	dump := os.NewFile(uintptr(fd), "gpu-exception")
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
	events, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watch core dumps: %w", err), dump.Close())
	}
	watch := os.NewFile(uintptr(events), "gpu-exception events")
	if _, err := unix.InotifyAddWatch(events, path, unix.IN_MODIFY|unix.IN_CLOSE_WRITE); err != nil {
		return nil, errors.Join(fmt.Errorf("watch core dumps: %w", err), watch.Close(), dump.Close())
	}
	if err := driver.DumpExceptions(path); err != nil {
		return nil, errors.Join(err, watch.Close(), dump.Close())
	}
	x := &exceptions{found: make(chan struct{})}
	go x.listen(watch, dump)
	return x, nil
})

// listen waits for the first dump and reads it.
func (x *exceptions) listen(watch, dump *os.File) {
	defer close(x.found)
	events := make([]byte, 16*(unix.SizeofInotifyEvent+unix.NAME_MAX+1))
	for {
		n, err := watch.Read(events)
		if err != nil {
			x.err = fmt.Errorf("watch core dumps: %w", err)
			return
		}
		x.begun.Store(true)
		if closed(events[:n]) {
			break
		}
	}
	e, err := coredump.Read(dump)
	if err != nil {
		x.err = fmt.Errorf("the device stopped a kernel; which one is unknown: %w", err)
		return
	}
	x.err = errors.New(e.String())
}

// closed reports whether the events tell of a writer that is done.
func closed(events []byte) bool {
	for len(events) >= unix.SizeofInotifyEvent {
		mask := *(*uint32)(unsafe.Pointer(&events[4]))
		if mask&unix.IN_CLOSE_WRITE != 0 {
			return true
		}
		length := *(*uint32)(unsafe.Pointer(&events[12]))
		events = events[min(len(events), unix.SizeofInotifyEvent+int(length)):]
	}
	return false
}

// exception returns what the device has stopped, if it has.
func (b *Backend) exception() error {
	x := b.exceptions
	if x == nil || !x.begun.Load() {
		return nil
	}
	return x.wait()
}

// named adds to a driver's error which kernel it is about, or how to find out.
func (b *Backend) named(err error) error {
	if e := b.exception(); e != nil {
		return fmt.Errorf("%w: %w", err, e)
	}
	return fmt.Errorf("%w: set WAYBILL_CUDA_SYNC=1 to see in which kernel", err)
}

// wait returns the exception when its dump is complete.
func (x *exceptions) wait() error {
	select {
	case <-x.found:
		return x.err
	case <-time.After(dumpTime):
		return fmt.Errorf("the device stopped a kernel; which one is unknown: no core dump after %v", dumpTime)
	}
}
