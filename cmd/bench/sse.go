package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// maxEvent bounds what the parser holds of one event. The largest events of real
// servers (logprobs of a whole prompt) have a few MB.
const maxEvent = 16 << 20

// sseParser cuts a stream of server-sent events into the data of each event. Its
// result does not depend on how the stream is cut into chunks. It is more
// forgiving than the standard where servers are known to be sloppy: a data line
// that is complete JSON, or [DONE], is an event of its own even if the blank line
// behind it is missing. Comments and all fields but data are ignored.
type sseParser struct {
	line    []byte // the unfinished line
	data    []byte // data lines of the unfinished event, joined with newlines
	hasData bool
	sawCR   bool // the last byte was CR: a LF right behind it ends no line
	started bool // the first line has been seen: no byte order mark any more
}

// feed parses a chunk and calls emit for each event that it completes. The slice
// given to emit is only valid during the call.
func (p *sseParser) feed(chunk []byte, emit func(data []byte) error) error {
	for len(chunk) > 0 {
		if p.sawCR {
			p.sawCR = false
			if chunk[0] == '\n' {
				chunk = chunk[1:]
				continue
			}
		}
		end := bytes.IndexAny(chunk, "\r\n")
		if end < 0 {
			return p.hold(chunk)
		}
		if err := p.hold(chunk[:end]); err != nil {
			return err
		}
		p.sawCR = chunk[end] == '\r'
		chunk = chunk[end+1:]
		if err := p.endLine(emit); err != nil {
			return err
		}
	}
	return nil
}

// close ends the stream: a last line without a line end still counts.
func (p *sseParser) close(emit func(data []byte) error) error {
	if len(p.line) > 0 {
		if err := p.endLine(emit); err != nil {
			return err
		}
	}
	return p.dispatch(emit)
}

// hold appends to the unfinished line.
func (p *sseParser) hold(b []byte) error {
	if len(p.line)+len(p.data)+len(b) > maxEvent {
		return fmt.Errorf("bench: an event is larger than %d bytes", maxEvent)
	}
	p.line = append(p.line, b...)
	return nil
}

// endLine handles the line held.
func (p *sseParser) endLine(emit func([]byte) error) error {
	line := p.line
	p.line = p.line[:0]
	if !p.started {
		p.started = true
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	if len(line) == 0 {
		return p.dispatch(emit)
	}
	value, isData := bytes.CutPrefix(line, []byte("data"))
	if !isData || len(value) > 0 && value[0] != ':' {
		return nil
	}
	value = bytes.TrimPrefix(bytes.TrimPrefix(value, []byte(":")), []byte(" "))
	if p.hasData {
		p.data = append(p.data, '\n')
	}
	p.data = append(p.data, value...)
	p.hasData = true
	if complete(p.data) {
		return p.dispatch(emit)
	}
	return nil
}

// dispatch emits the event held, if any.
func (p *sseParser) dispatch(emit func([]byte) error) error {
	if !p.hasData {
		return nil
	}
	data := p.data
	p.data, p.hasData = p.data[:0], false
	if len(data) == 0 {
		return nil
	}
	return emit(data)
}

// complete reports whether data can't go on in another data line.
func complete(data []byte) bool {
	t := bytes.TrimSpace(data)
	if len(t) == 0 {
		return false
	}
	return bytes.Equal(t, []byte("[DONE]")) || t[0] == '{' && t[len(t)-1] == '}' && json.Valid(t)
}
