package httpapi

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestHeadIsAnsweredWhereGetIs(t *testing.T) {
	s := startServer(t)
	for _, path := range []string{"/health", "/ready", "/version", "/metrics", "/v1/models"} {
		res, err := http.Head("http://" + s.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 200 {
			t.Errorf("HEAD %s: %d, want 200", path, res.StatusCode)
		}
	}
}

func TestNearMissesAreNotRedirected(t *testing.T) {
	s := startServer(t)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, path := range []string{"/health/", "/V1/models", "/v1/models/../completions/", "//health"} {
		res, err := client.Get("http://" + s.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		// What was asked for is named as it was sent, be it taken for a path or a model.
		if body, _ := io.ReadAll(res.Body); !strings.Contains(string(body), strings.TrimPrefix(path, "/v1/models/")) {
			t.Errorf("GET %s: %s, want what was asked for as it was sent", path, body)
		}
		res.Body.Close()
		if res.StatusCode != 404 || res.Header.Get("Location") != "" {
			t.Errorf("GET %s: %d to %q, want 404", path, res.StatusCode, res.Header.Get("Location"))
		}
	}
}
