// Package coredump reads from a GPU core dump, which NVIDIA's driver writes when a
// kernel does what it must not, where that was: the layout is the one of cuda-gdb and
// of the toolkit's cudacoredump.h. The rest of a dump is not read.
package coredump

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Exception is what stopped a kernel.
type Exception struct {
	// Kernel is the kernel's name in the device's code; C++ names are mangled.
	Kernel string
	// Code is the driver's number of the exception (CUDBGException_t), PC the address of
	// the instruction.
	Code uint32
	PC   uint64
}

// String says both, with the exception in words where they are known.
func (e Exception) String() string {
	what := kinds[e.Code]
	if what == "" {
		what = fmt.Sprintf("device exception %d", e.Code)
	}
	if e.Kernel == "" {
		return what
	}
	return "kernel " + e.Kernel + ": " + what
}

// kinds are the exceptions that kernels run into (cudadebugger.h).
var kinds = map[uint32]string{
	1: "illegal address", 2: "stack overflow of a thread", 3: "stack overflow", 4: "illegal instruction", 5: "address out of range",
	6: "misaligned address", 11: "misaligned address", 7: "invalid address space", 8: "invalid program counter", 9: "stack overflow", 10: "illegal address",
	12: "assertion failed", 14: "illegal address",
}

// Names and layout of a dump's parts.
const (
	smTable = ".cudbg.smtbl." // followed by the device
	images  = ".cudbg.relfimg."
	// An entry of the table of multiprocessors: number (8 bytes), exception (4), whether
	// the address is known (4), address (8), and what is not read here.
	smException, smKnown, smPC, smRead = 8, 12, 16, 24
	// maxPart bounds what is read of a part: code of one module.
	maxPart = 256 << 20
)

// ErrNone says that no multiprocessor reports an exception.
var ErrNone = errors.New("coredump: no exception")

// Read finds the first exception of a dump. A dump that is cut off or damaged is an
// error. An exception whose kernel is unknown has none.
func Read(r io.ReaderAt) (Exception, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return Exception{}, fmt.Errorf("coredump: %w", err)
	}
	e, err := exception(f)
	if err != nil || e.PC == 0 {
		return e, err
	}
	for _, s := range f.Sections {
		if !strings.HasPrefix(s.Name, images) {
			continue
		}
		if e.Kernel = kernelAt(s, e.PC); e.Kernel != "" {
			break
		}
	}
	return e, nil
}

// exception finds the first multiprocessor that reports one.
func exception(f *elf.File) (Exception, error) {
	for _, s := range f.Sections {
		if !strings.HasPrefix(s.Name, smTable) {
			continue
		}
		if s.Entsize < smRead || s.Entsize > maxPart || s.Size > maxPart {
			return Exception{}, fmt.Errorf("coredump: table of multiprocessors of %d bytes, %d each", s.Size, s.Entsize)
		}
		data, err := s.Data()
		if err != nil {
			return Exception{}, fmt.Errorf("coredump: table of multiprocessors: %w", err)
		}
		for size := int(s.Entsize); len(data) >= size; data = data[size:] {
			e := Exception{Code: binary.LittleEndian.Uint32(data[smException:])}
			if e.Code == 0 {
				continue
			}
			if binary.LittleEndian.Uint32(data[smKnown:]) != 0 {
				e.PC = binary.LittleEndian.Uint64(data[smPC:])
			}
			return e, nil
		}
	}
	return Exception{}, ErrNone
}

// kernelAt returns the name of the kernel of a module whose code lies at pc, or "". A
// module that cannot be read has none.
func kernelAt(s *elf.Section, pc uint64) string {
	if s.ReaderAt == nil { // compressed
		return ""
	}
	f, err := elf.NewFile(s)
	if err != nil {
		return ""
	}
	for _, t := range f.Sections {
		if name, ok := strings.CutPrefix(t.Name, ".text."); ok && pc >= t.Addr && pc-t.Addr < t.Size {
			return name
		}
	}
	return ""
}
