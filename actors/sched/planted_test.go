package sched

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var plantedRun = flag.Bool("planted", false, "plant bugs one by one and demand that the simulations find each: make planted")

// planted are bugs of the kinds that schedulers have. Each replaces a piece of a
// source file that occurs once; the tree stays as it is (go's -overlay).
var planted = []struct{ name, file, old, new string }{
	{"a block that others hold is taken for free", "next.go", "if b := p.cursor; p.marked(b) == 0 {", "if b := p.cursor; true {"},
	{"blocks of an aborted sequence are freed although the running step writes them", "core.go", "inStep := c.inFlight != nil && s.step == c.lastStep", "inStep := false"},
	{"blocks of a plan on offer are freed", "core.go", "inOffer := c.proposed != nil && s.plan == c.proposed.Version", "inOffer := false"},
	{"an aborted sequence keeps its blocks", "core.go", "		c.pool.release(s.blocks)\n		s.blocks = nil\n		delete", "		s.blocks = nil\n		delete"},
	{"an overwritten block is still found as the prefix that it held", "blocks.go", "	p.refs[b] = 1\n	p.forget(b)", "	p.refs[b] = 1"},
	{"a block is published before it is full", "commit.go", "(s.published+1)*size <= s.computed", "(s.published+1)*size <= s.computed+1 && (s.published+1)*size <= len(s.tokens)"},
	{"the last token of the budget is computed twice", "plan.go", "if n >= l.MaxTokens {", "if n > l.MaxTokens {"},
	{"Bind keeps rows whose sequence has just ended", "plan.go", "if in.Failed || in.Dropped || r.Limits.finish(in.Token, r.Generated) != NotFinished {", "if in.Failed || in.Dropped {"},
	{"whoever waits for blocks may be overtaken for ever", "candidates.go", "if blocked != nil && blocked.bypassed+overtaken >= MaxBypass {", "if false {"},
	{"the time budget is ignored beside streams", "prefill.go", "		chunk = max(decode, MinChunk)\n", "		chunk = 20 * max(decode, MinChunk)\n"},
	{"a plan that is void stays on offer", "commit.go", "		c.Discard(c.proposed)\n		c.proposed = nil\n		c.sweep()", "		c.sweep()"},
	{"one row too many", "next.go", "slots: c.cfg.MaxSeqs - len(c.running),", "slots: c.cfg.MaxSeqs - len(c.running) + 1,"},
	{"siblings wait for ever for a leader that was aborted", "core.go", "		if g.leader == s.ID {\n			g.ready = true", "		if false {\n			g.ready = true"},
	{"siblings wait a step more than the leader's prompt takes", "commit.go", "g.leader == s.ID && s.computed >= s.promptLen {", "g.leader == s.ID && s.computed > s.promptLen {"},
	{"a group of siblings is never forgotten", "core.go", "if g.members--; g.members == 0 {", "if g.members--; g.members < 0 {"},
	{"a stop string's end is lost", "core.go", "func (c *Core) Stopped(id SeqID) {\n	c.note(Event{Op: \"stopped\", ID: id})\n	c.leave(id)", "func (c *Core) Stopped(id SeqID) {\n	c.note(Event{Op: \"stopped\", ID: id})"},
	{"a resumed sequence counts as scheduled for the first time", "commit.go", "		s.firstRun = true\n", ""},
	{"an ended sequence is reported twice", "commit.go", "		if s.ended {\n			continue\n		}\n		outs", "		outs"},
}

// TestPlantedBugsAreFound checks the simulations themselves: a check that finds
// nothing may be one that looks at nothing.
func TestPlantedBugsAreFound(t *testing.T) {
	texts := map[string]string{}
	for _, p := range planted {
		b, err := os.ReadFile(p.file)
		if err != nil {
			t.Fatal(err)
		}
		texts[p.file] = string(b)
		if n := strings.Count(string(b), p.old); n != 1 {
			t.Errorf("%q: what it replaces occurs %d times in %s, want 1", p.name, n, p.file)
		}
	}
	if !*plantedRun || t.Failed() {
		return
	}
	for _, p := range planted {
		t.Run(p.name, func(t *testing.T) {
			dir := t.TempDir()
			changed := filepath.Join(dir, p.file)
			if err := os.WriteFile(changed, []byte(strings.Replace(texts[p.file], p.old, p.new, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			at, err := filepath.Abs(p.file)
			if err != nil {
				t.Fatal(err)
			}
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{at: changed}})
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "overlay.json")
			if err := os.WriteFile(file, overlay, 0o644); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			out, err := exec.Command("go", "test", "-overlay", file, "-failfast", "-count=1", "-timeout", "60s",
				"-run", "Simulated|Day", ".", "-hours", "3").CombinedOutput()
			took := time.Since(began)
			if strings.Contains(string(out), "[build failed]") || strings.Contains(string(out), "[setup failed]") {
				t.Fatalf("it does not build: %s", out)
			}
			if err == nil {
				t.Fatalf("not found in %v", took)
			}
			t.Logf("found in %.1f s: %s", took.Seconds(), verdict(string(out)))
		})
	}
}

// verdict returns the line that says what a simulation found.
func verdict(out string) string {
	best := ""
	for _, l := range strings.Split(out, "\n") {
		for _, w := range []string{"panic:", "replay:", "sim_test.go"} {
			if strings.Contains(l, w) && !strings.Contains(l, "admit ") {
				best = strings.TrimSpace(l)
			}
		}
		if strings.HasPrefix(l, "panic:") {
			break
		}
	}
	return fmt.Sprintf("%.200s", best)
}
