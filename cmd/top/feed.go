package top

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"waybill/actors"
)

// maxSample bounds one event of the server's console.
const maxSample = 16 << 20

// reconnect is the time between two tries.
const reconnect = 2 * time.Second

// feed brings a server's samples, or why there are none.
type feed struct {
	url, key string
	out      chan any // *actors.Snapshot or error
}

// run reads until ctx ends, and connects again whenever the stream does.
func (f *feed) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.read(ctx)
		if err == nil {
			err = errors.New("the server closed the connection")
		}
		f.put(ctx, err)
		select {
		case <-ctx.Done():
		case <-time.After(reconnect):
		}
	}
}

func (f *feed) put(ctx context.Context, v any) {
	select {
	case f.out <- v:
	case <-ctx.Done():
	}
}

// read reads one connection to its end.
func (f *feed) read(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/console/api/events", nil)
	if err != nil {
		return err
	}
	if f.key != "" {
		req.Header.Set("Authorization", "Bearer "+f.key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		var b struct {
			Error struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		body, _ := io.ReadAll(io.LimitReader(res.Body, maxSample))
		if json.Unmarshal(body, &b) == nil && b.Error.Message != "" {
			return fmt.Errorf("%s: %s", res.Status, b.Error.Message)
		}
		return errors.New(res.Status)
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, maxSample)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		s := new(actors.Snapshot)
		if err := json.Unmarshal([]byte(data), s); err != nil {
			return fmt.Errorf("a sample cannot be read: %w", err)
		}
		f.put(ctx, s)
	}
	return lines.Err()
}
