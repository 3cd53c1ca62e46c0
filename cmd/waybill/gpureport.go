package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"waybill/cmd/gpureport"
)

// gpuReportCmd holds the flags of `waybill gpu-report`.
type gpuReportCmd struct {
	Only   []string `help:"Parts to run, of ${parts}. Default: all."`
	Out    string   `default:"gpu-report" help:"Folder for report.json, report.md and logs."`
	Folder string   `help:"The unpacked bundle of make cuda-bundle. Default: where this program lies."`
}

// Run measures the GPU machine it runs on.
func (c *gpuReportCmd) Run() error {
	if c.Folder == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("gpu-report: %w", err)
		}
		c.Folder = filepath.Dir(self)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The tests run in folders of their own.
	dir, err := filepath.Abs(c.Out)
	if err != nil {
		return fmt.Errorf("gpu-report: %w", err)
	}
	return gpureport.Run(ctx, gpureport.Options{Folder: c.Folder, Only: c.Only, Dir: dir, Log: os.Stdout})
}
