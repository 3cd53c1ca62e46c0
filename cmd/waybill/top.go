package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"waybill/cmd/top"
)

// topCmd holds the flags of `waybill top`.
type topCmd struct {
	URL    string `arg:"" optional:"" default:"http://127.0.0.1:8000" help:"The server, as http://host:port. Default: http://127.0.0.1:8000."`
	APIKey string `name:"api-key" help:"The server's API key, if it has one."`
	Once   bool   `help:"Print every view once, as text, and end."`
}

// Run shows a server's console in the terminal.
func (c *topCmd) Run() error {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return exitError{2, fmt.Errorf("%q is not a URL such as http://127.0.0.1:8000", c.URL)}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return top.Run(ctx, top.Options{URL: strings.TrimSuffix(c.URL, "/"), Key: c.APIKey, Once: c.Once, Out: os.Stdout})
}
