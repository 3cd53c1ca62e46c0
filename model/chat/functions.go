package chat

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"
)

// boundedRange is range() with a budget for the whole rendering.
func boundedRange(budget int64) func([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
	return func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
		nums := make([]int64, len(args))
		for i, a := range args {
			if !a.IsInt() {
				return jinja.Undefined(), errors.New("range: an argument is not an integer")
			}
			nums[i] = a.AsInt()
		}
		start, stop, step := int64(0), int64(0), int64(1)
		switch len(nums) {
		case 1:
			stop = nums[0]
		case 2:
			start, stop = nums[0], nums[1]
		case 3:
			start, stop, step = nums[0], nums[1], nums[2]
		default:
			return jinja.Undefined(), fmt.Errorf("range: %d arguments", len(args))
		}
		if step == 0 {
			return jinja.Undefined(), errors.New("range: step 0")
		}
		var items []jinja.Value
		for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
			if budget--; budget < 0 {
				return jinja.Undefined(), fmt.Errorf("range: more than %d numbers in one rendering", int64(MaxRange))
			}
			items = append(items, jinja.NewInt(i))
			if next := i + step; (next > i) != (step > 0) {
				break // past the largest integer
			}
		}
		return jinja.NewList(items), nil
	}
}

// strftimeNow is strftime_now with a clock that is passed in.
func strftimeNow(now time.Time) func([]jinja.Value, map[string]jinja.Value) (jinja.Value, error) {
	return func(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
		if len(args) != 1 || !args[0].IsString() {
			return jinja.Undefined(), errors.New("strftime_now: one format string is needed")
		}
		return jinja.NewString(strftime(args[0].AsString(), now)), nil
	}
}

// strftime formats t as Python's datetime.strftime does in the C locale; unknown directives stay as they are.
func strftime(format string, t time.Time) string {
	layouts := map[byte]string{
		'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'B': "January", 'b': "Jan", 'h': "Jan",
		'A': "Monday", 'a': "Mon", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'j': "002",
		'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'z': "-0700", 'Z': "MST",
		'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05", 'f': "000000",
	}
	var out strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			out.WriteByte(format[i])
			continue
		}
		i++
		if format[i] == '-' && i+1 < len(format) { // glibc: no leading zero
			if layout, ok := layouts[format[i+1]]; ok {
				i++
				s := strings.TrimLeft(t.Format(layout), "0 ")
				if s == "" {
					s = "0"
				}
				out.WriteString(s)
				continue
			}
		}
		switch layout, ok := layouts[format[i]]; {
		case format[i] == 'f':
			fmt.Fprintf(&out, "%06d", t.Nanosecond()/1000)
		case ok:
			out.WriteString(t.Format(layout))
		case format[i] == '%':
			out.WriteByte('%')
		default:
			out.WriteByte('%')
			out.WriteByte(format[i])
		}
	}
	return out.String()
}
