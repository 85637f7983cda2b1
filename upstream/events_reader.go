package upstream

import (
	"bytes"
	"fmt"
	"io"
)

// eventReader takes a stream of server-sent events apart. Only their data counts: names and comments say nothing here.
type eventReader struct {
	source io.Reader
	buffer []byte
	// what has been read and not been handed out is buffer[from:to].
	from, to int
	ended    error
}

const (
	firstBuffer = 4 << 10
	// maxEvent bounds one event, in bytes: the answers of servers that do not stream come whole.
	maxEvent = 64 << 20
)

// buffered tells whether an event is there without reading.
func (r *eventReader) buffered() bool {
	rest := r.buffer[r.from:r.to]
	for {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			return false
		}
		if bytes.HasPrefix(rest, []byte("data:")) {
			return true
		}
		rest = rest[end+1:]
	}
}

// next returns the data of the next event, valid until the following call; io.EOF at the end of the stream. An event whose data has
// several lines comes as several: no server writes JSON so.
func (r *eventReader) next() ([]byte, error) {
	for {
		for {
			end := bytes.IndexByte(r.buffer[r.from:r.to], '\n')
			if end < 0 {
				break
			}
			line := r.buffer[r.from : r.from+end]
			r.from += end + 1
			if data, ok := dataOf(line); ok {
				return data, nil
			}
		}
		if r.ended != nil {
			if data, ok := dataOf(r.buffer[r.from:r.to]); ok { // a last line without an end
				r.from = r.to
				return data, nil
			}
			return nil, r.ended
		}
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

func dataOf(line []byte) ([]byte, bool) {
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok {
		return nil, false
	}
	data = bytes.TrimSpace(data)
	return data, len(data) > 0
}

// fill reads more.
func (r *eventReader) fill() error {
	if r.from > 0 {
		r.to = copy(r.buffer, r.buffer[r.from:r.to])
		r.from = 0
	}
	if r.to == len(r.buffer) {
		if len(r.buffer) >= maxEvent {
			return fmt.Errorf("an event of more than %d bytes", maxEvent)
		}
		grown := make([]byte, min(max(firstBuffer, 2*len(r.buffer)), maxEvent))
		copy(grown, r.buffer[:r.to])
		r.buffer = grown
	}
	count, err := r.source.Read(r.buffer[r.to:])
	r.to += count
	r.ended = err
	return nil
}

// all reads the rest as one piece: the body of an answer that is no stream.
func (r *eventReader) all() ([]byte, error) {
	for r.ended == nil {
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
	if r.ended != io.EOF {
		return nil, r.ended
	}
	body := r.buffer[r.from:r.to]
	r.from = r.to
	return body, nil
}
