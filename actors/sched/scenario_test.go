package sched

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the scenarios' answers anew")

// scenario is a Core that a text file talks to. Lines that begin with a word are
// commands, those behind "> " what the core answers; `go test -update` writes the
// answers, a review reads them.
type scenario struct {
	core    *Core
	plan    *Plan
	results []Result
	step    StepID
}

// args reads key=value words.
func args(words []string) map[string]int {
	out := map[string]int{}
	for _, w := range words {
		k, v, ok := strings.Cut(w, "=")
		if !ok {
			k, v = "id", w
		}
		n, err := strconv.Atoi(v)
		if err != nil {
			panic("scenario: " + w + " is no number")
		}
		out[k] = n
	}
	return out
}

// do runs one command and returns the answer.
func (s *scenario) do(line string) string {
	words := strings.Fields(line)
	a := map[string]int{}
	if words[0] != "end" {
		a = args(words[1:])
	}
	switch words[0] {
	case "core":
		c, err := New(Config{
			BlockSize: a["block"], NumBlocks: a["blocks"], MaxSeqs: a["seqs"], MaxBatchedTokens: a["tokens"],
			MaxModelLen: a["len"], PrefixCache: a["cache"] == 1, PrefillChunk: time.Duration(a["chunk_ms"]) * time.Millisecond, ChunkUnit: a["unit"],
		})
		if err != nil {
			return err.Error() + "\n"
		}
		s.core = c
		return ""
	case "calibrate": // a machine with token_us per token and step_us per step
		for _, n := range []int{1, 10, 50, 100, 1, 200} {
			for range 20 {
				s.core.Calibrate(0, n, time.Duration(a["step_us"]+n*a["token_us"])*time.Microsecond)
			}
		}
		return ""
	case "admit":
		prompt := make([]int32, a["prompt"])
		for i := range prompt {
			prompt[i] = int32(1000*a["stem"] + i)
		}
		for i := a["differs"]; a["differs"] > 0 && i < len(prompt); i++ {
			prompt[i] += int32(100000 * a["id"])
		}
		var hashes []uint64
		for i := 0; i+s.core.cfg.BlockSize <= len(prompt); i += s.core.cfg.BlockSize {
			hashes = append(hashes, HashBlock(prompt[i:i+s.core.cfg.BlockSize]))
		}
		err := s.core.Admit(Sequence{
			ID: SeqID(a["id"]), Group: uint64(a["group"]), Prompt: prompt, Hashes: hashes, PromptLogits: a["logits"] == 1,
			Limits: &Limits{MaxTokens: a["max"], MinTokens: a["min"], Stop: []int32{7}},
		})
		if err != nil {
			return err.Error() + "\n"
		}
		return ""
	case "abort":
		s.core.Abort(SeqID(a["id"]))
		return s.after()
	case "offer": // propose and publish, replacing what is on offer
		s.plan = s.core.Next()
		s.core.Publish(s.plan)
		return s.plan.Describe() + s.after()
	case "launch": // the device takes what is on offer
		return s.launch()
	case "end": // the running step ends: a token per row in order
		return s.end(words[1:])
	case "stats":
		st := s.core.Stats()
		return fmt.Sprintf("waiting %d running %d free %d cached %d hits %d/%d preemptions %d\n",
			st.Waiting, st.Running, st.FreeBlocks, st.CachedBlocks, st.PrefixHits, st.PrefixQueries, st.Preemptions)
	}
	panic("scenario: unknown command " + line)
}

func (s *scenario) after() string {
	if r := s.core.Released(); len(r) > 0 {
		return fmt.Sprintf("released %v\n", r)
	}
	return ""
}

func (s *scenario) launch() string {
	if s.plan == nil {
		return "nothing on offer\n"
	}
	keep, n := s.plan.Bind(s.results, nil)
	if n == 0 {
		s.core.Void(s.plan.Version)
		s.plan = nil
		return "void\n" + s.after()
	}
	out := ""
	for i := range keep {
		if !keep[i] {
			out += fmt.Sprintf("drops seq %d\n", s.plan.Rows[i].Seq)
		}
	}
	s.step++
	done, err := s.core.Bound(s.step, s.plan.Version)
	if err != nil {
		return err.Error() + "\n"
	}
	for _, l := range []struct {
		what string
		ids  []SeqID
	}{{"first step of", done.First}, {"resumes", done.Resumed}, {"preempts", done.Preempted}} {
		if len(l.ids) > 0 {
			out += fmt.Sprintf("%s %v\n", l.what, l.ids)
		}
	}
	s.plan = nil
	return fmt.Sprintf("step %d runs\n", s.step) + out + s.after()
}

func (s *scenario) end(tokens []string) string {
	plan := s.core.inFlight
	if plan == nil {
		return "no step runs\n"
	}
	res := make([]Result, len(plan.Rows))
	for i := range res {
		res[i].Dropped = !s.core.bound[i]
		if i < len(tokens) {
			if tokens[i] == "nan" {
				res[i].Failed = true
				continue
			}
			n, err := strconv.Atoi(tokens[i])
			if err != nil {
				panic(err)
			}
			res[i].Token = int32(n)
		}
	}
	s.results = res
	outs, err := s.core.Done(s.step, res, 10*time.Millisecond, nil)
	if err != nil {
		return err.Error() + "\n"
	}
	out := ""
	for _, o := range outs {
		out += fmt.Sprintf("seq %d", o.Seq)
		if o.HasToken {
			out += fmt.Sprintf(" token %d", o.Token)
		}
		out += map[Finish]string{NotFinished: "", FinishStop: " stop", FinishLength: " length"}[o.Finish]
		if o.Failed {
			out += " failed"
		}
		out += "\n"
	}
	return out + s.after()
}

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d scenarios: %v", len(files), err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			s := &scenario{}
			for sc := bufio.NewScanner(bytes.NewReader(want)); sc.Scan(); {
				line := sc.Text()
				if strings.HasPrefix(line, ">") {
					continue
				}
				got.WriteString(line + "\n")
				if line == "" || strings.HasPrefix(line, "#") {
					continue
				}
				for _, a := range strings.Split(strings.TrimSuffix(s.do(line), "\n"), "\n") {
					if a != "" {
						got.WriteString("> " + a + "\n")
					}
				}
			}
			if *update {
				if err := os.WriteFile(f, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got.String() != string(want) {
				t.Errorf("%s: the answers changed; review with -update\ngot:\n%s\nwant:\n%s", f, got.String(), want)
			}
		})
	}
}
