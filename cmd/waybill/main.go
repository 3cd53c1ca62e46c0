// Command waybill serves language models over OpenAI's HTTP API and says where
// every millisecond of a request's time went.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"waybill/cmd/gpureport"
)

// version is set by the build.
var version = "dev"

// cli is the command line. Every flag has an environment form; docs/ENVIRONMENT.md
// lists them all.
type cli struct {
	Serve   serveCmd     `cmd:"" help:"Serve a model over HTTP."`
	Bench   benchCmd     `cmd:"" help:"Measure a server: load generator with the arguments and results of vllm bench serve."`
	TTFT    ttftCmd      `cmd:"" name:"ttft" help:"Say where the time to first token went."`
	Top     topCmd       `cmd:"" help:"Watch a server's actors, requests and steps in the terminal."`
	Report  gpuReportCmd `cmd:"" name:"gpu-report" help:"Measure this GPU machine: conformance, goldens, steps, a server under load."`
	Version versionCmd   `cmd:"" help:"Print the version."`
}

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run() error {
	fmt.Println("waybill", version)
	return nil
}

// exitError is an error with the process's exit status.
type exitError struct {
	status int
	err    error
}

func (e exitError) Error() string { return e.err.Error() }

func (e exitError) Unwrap() error { return e.err }

// newParser returns the parser of c.
func newParser(c *cli, options ...kong.Option) *kong.Kong {
	parser, err := kong.New(c, append([]kong.Option{
		kong.Name("waybill"),
		kong.Description("An LLM server that can say where the time went."),
		// The whole help would hide the one line that says what is wrong.
		kong.ShortUsageOnError(),
		kong.DefaultEnvars("WAYBILL"),
		kong.Vars{"parts": strings.Join(gpureport.Parts, ", ")},
		// Every start-up error ends with status 2; kong's own for usage is 80.
		kong.Exit(func(status int) {
			if status != 0 {
				status = 2
			}
			os.Exit(status)
		}),
	}, options...)...)
	if err != nil {
		panic("BUG: command line: " + err.Error())
	}
	return parser
}

func main() {
	var c cli
	parser := newParser(&c)
	k, err := parser.Parse(repeatFlags(os.Args[1:]))
	parser.FatalIfErrorf(err)
	if err := k.Run(); err != nil {
		lastWords(err)
		status := 1
		var e exitError
		if errors.As(err, &e) {
			status = e.status
		}
		os.Exit(status)
	}
}
