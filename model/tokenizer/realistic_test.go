package tokenizer

import (
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// textsFlag names a folder of more texts for BenchmarkEncodeRealistic.
var textsFlag = flag.String("texts", "", "folder of *.txt files that BenchmarkEncodeRealistic encodes too")

// BenchmarkEncodeRealistic encodes what servers are sent: prose, program text, chats of both, a mixture with German and
// Chinese, and the prompts that load generators make of random ids. A text met before is warm; cold is each with an
// empty memo. MB/cpu-s counts the processor's time, not that of other programs.
func BenchmarkEncodeRealistic(b *testing.B) {
	for name, tok := range testTokenizers(b) {
		for kind, text := range realisticTexts(b, tok) {
			for _, heat := range []string{"warm", "cold"} {
				b.Run(fmt.Sprintf("%s/%s/%s", name, kind, heat), func(b *testing.B) {
					runtime.LockOSThread()
					defer runtime.UnlockOSThread()
					b.ReportAllocs()
					ids := tok.Encode(nil, text, EncodeOptions{ParseSpecial: true})
					var spent time.Duration
					for b.Loop() {
						if heat == "cold" {
							clear(tok.memo.short)
							clear(tok.memo.longs)
						}
						before := threadTime(b)
						ids = tok.Encode(ids[:0], text, EncodeOptions{ParseSpecial: true})
						spent += threadTime(b) - before
					}
					b.ReportMetric(float64(len(text))*float64(b.N)/1e6/spent.Seconds(), "MB/cpu-s")
					b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N)/float64(len(ids)), "cpu-ns/token")
				})
			}
		}
	}
}

// threadTime returns the processor time of this thread.
func threadTime(tb testing.TB) time.Duration {
	tb.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(now.Nano())
}

// realisticTexts returns texts by kind: a licence and the documentation, the repository's source, both in turns, the
// former with German and Chinese, 20,000 random ids as text, and the files of the -texts folder.
func realisticTexts(tb testing.TB, tok *Tokenizer) map[string]string {
	tb.Helper()
	prose := readAll(tb, "../../LICENSE") + readTree(tb, "../../docs", ".md", 1<<20)
	source := readTree(tb, "../..", ".go", 1<<20)
	rng := rand.New(rand.NewPCG(1, 2))
	var ids []int32
	for len(ids) < 20_000 {
		if id := int32(rng.IntN(tok.VocabSize())); tok.has(id, flagKnown) && !tok.IsControl(id) {
			ids = append(ids, id)
		}
	}
	texts := map[string]string{
		"prose":  prose,
		"source": source,
		"chat":   chatOf(prose, source),
		"mixed":  mixtureOf(rng, prose, readAll(tb, "testdata/languages.txt")),
		"random": strings.ToValidUTF8(tok.Decode(ids, false), ""),
	}
	if *textsFlag != "" {
		files, err := filepath.Glob(filepath.Join(*textsFlag, "*.txt"))
		if err != nil || len(files) == 0 {
			tb.Fatalf("-texts %s: no files (%v)", *textsFlag, err)
		}
		for _, file := range files {
			texts[strings.TrimSuffix(filepath.Base(file), ".txt")] = readAll(tb, file)
		}
	}
	return texts
}

// chatOf makes turns of a paragraph, a piece of program and a paragraph.
func chatOf(prose, source string) string {
	var chat strings.Builder
	paragraphs, code := strings.Split(prose, "\n\n"), strings.Split(source, "\n\n")
	for i := range min(len(paragraphs)/2, len(code)) {
		role := [2]string{"user", "assistant"}[i%2]
		fmt.Fprintf(&chat, "<|im_start|>%s\n%s\n```go\n%s\n```\n\n%s<|im_end|>\n",
			role, paragraphs[2*i], code[i], paragraphs[2*i+1])
	}
	return chat.String()
}

// mixtureOf puts the lines of both texts in any order, those of the shorter one as often as it takes to be as long.
func mixtureOf(rng *rand.Rand, long, short string) string {
	lines := strings.SplitAfter(long+strings.Repeat(short, len(long)/len(short)), "\n")
	rng.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	return strings.Join(lines, "")
}

func readAll(tb testing.TB, file string) string {
	tb.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

// readTree joins the files under dir whose names end in ext, in order of their paths, until limit bytes are read.
// Hidden folders are left out.
func readTree(tb testing.TB, dir, ext string, limit int) string {
	tb.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && len(d.Name()) > 2 && d.Name()[0] == '.':
			return fs.SkipDir
		case all.Len() >= limit:
			return fs.SkipAll
		case !d.IsDir() && filepath.Ext(path) == ext:
			all.WriteString(readAll(tb, path))
		}
		return nil
	})
	if err != nil || all.Len() == 0 {
		tb.Fatalf("%s: %d bytes of *%s (%v)", dir, all.Len(), ext, err)
	}
	return all.String()
}
