package coredump

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// section is a part of a made-up file.
type section struct {
	name    string
	data    []byte
	address uint64
	entry   uint64
}

// file returns a 64-bit ELF file of the sections.
func file(sections ...section) []byte {
	le := binary.LittleEndian
	names := []byte{0}
	body := make([]byte, 64)
	type header struct {
		Name, Type                uint32
		Flags, Addr, Offset, Size uint64
		Link, Info                uint32
		Align, Entsize            uint64
	}
	headers := []header{{}}
	for _, s := range append(sections, section{name: ".shstrtab"}) {
		at := uint32(len(names))
		names = append(append(names, s.name...), 0)
		if s.name == ".shstrtab" {
			s.data = names
		}
		headers = append(headers, header{Name: at, Type: 0x80000000, Addr: s.address, Offset: uint64(len(body)), Size: uint64(len(s.data)), Entsize: s.entry})
		body = append(body, s.data...)
	}
	headers[len(headers)-1].Type = 3
	head := bytes.NewBuffer(nil)
	head.WriteString("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9))
	for _, v := range []any{uint16(4), uint16(190), uint32(1), uint64(0), uint64(0), uint64(len(body)), uint32(0),
		uint16(64), uint16(0), uint16(0), uint16(64), uint16(len(headers)), uint16(len(headers) - 1)} {
		_ = binary.Write(head, le, v)
	}
	copy(body, head.Bytes())
	tail := bytes.NewBuffer(body)
	_ = binary.Write(tail, le, headers)
	return tail.Bytes()
}

// processors returns a table of n multiprocessors of which one reports an exception.
func processors(n, at int, code, known uint32, pc uint64) section {
	const entry = 48
	data := make([]byte, n*entry)
	for i := range n {
		binary.LittleEndian.PutUint64(data[i*entry:], uint64(i))
	}
	if at >= 0 {
		binary.LittleEndian.PutUint32(data[at*entry+8:], code)
		binary.LittleEndian.PutUint32(data[at*entry+12:], known)
		binary.LittleEndian.PutUint64(data[at*entry+16:], pc)
	}
	return section{name: ".cudbg.smtbl.dev0", data: data, entry: entry}
}

// module returns the image of a module of two kernels of 0x180 bytes from start on.
func module(first, second string, start uint64) section {
	code := make([]byte, 0x180)
	return section{name: ".cudbg.relfimg.dev0.ctx0", data: file(
		section{name: ".nv.info." + first, data: code}, section{name: ".text." + first, data: code, address: start},
		section{name: ".text." + second, data: code, address: start + 0x200})}
}

func TestReadNamesTheKernel(t *testing.T) {
	parts := []section{module("rms_norm", "copy_rows", 0x7000), {name: ".cudbg.relfimg.dev0.ctx0", data: []byte("no module")}, module("draw", "pick", 0x9000)}
	for _, c := range []struct {
		what  string
		table section
		want  string
		err   error
	}{
		{"first kernel of a module, last multiprocessor", processors(132, 131, 14, 1, 0x7000), "kernel rms_norm: illegal address", nil},
		{"second kernel", processors(132, 0, 6, 1, 0x737f), "kernel copy_rows: misaligned address", nil},
		{"behind a module that cannot be read", processors(2, 1, 4, 1, 0x92a0), "kernel pick: illegal instruction", nil},
		{"between kernels", processors(2, 1, 4, 1, 0x7190), "illegal instruction", nil},
		{"behind the last byte", processors(2, 1, 99, 1, 0x7380), "device exception 99", nil},
		{"no address", processors(2, 1, 14, 0, 0x7000), "illegal address", nil},
		{"nothing", processors(132, -1, 0, 0, 0), "", ErrNone},
	} {
		got, err := Read(bytes.NewReader(file(append(parts, c.table)...)))
		if !errors.Is(err, c.err) || err == nil && got.String() != c.want {
			t.Errorf("%s: %v, %v, want %q, %v", c.what, got, err, c.want, c.err)
		}
	}
}

// A dump that is cut off anywhere, or has any byte changed, is read without a panic.
func TestReadOfDamagedDumps(t *testing.T) {
	whole := file(processors(8, 5, 14, 1, 0x7000), module("rms_norm", "copy_rows", 0x7000))
	if e, err := Read(bytes.NewReader(whole)); err != nil || e.Kernel != "rms_norm" {
		t.Fatalf("%v, %v", e, err)
	}
	for n := range whole {
		if e, err := Read(bytes.NewReader(whole[:n])); err == nil && e.Kernel != "" && n < len(whole)/2 {
			t.Errorf("%d of %d bytes: %v", n, len(whole), e)
		}
	}
	for i := range whole {
		for _, v := range []byte{0, 0x7f, 0xff} {
			damaged := bytes.Clone(whole)
			damaged[i] = v
			_, _ = Read(bytes.NewReader(damaged))
		}
	}
	short := processors(8, 5, 14, 1, 0x7000)
	short.entry = 16
	if _, err := Read(bytes.NewReader(file(short))); err == nil || !strings.Contains(err.Error(), "16 each") {
		t.Errorf("entries of 16 bytes: %v", err)
	}
}
