package actors

import (
	"errors"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"waybill/model/heaptest"
)

// However many requests hold a long piece of text without a border, an Intake merges one
// at a time: each takes some 30 times its bytes until it is done. Texts without such a
// piece do not wait for them.
func TestLongPiecesAreMergedInTurn(t *testing.T) {
	e := startEngine(t, testConfig())
	const requests, size = 40, 60 << 10
	if e.tok.MustExceed(strings.Repeat("a", size), e.cfg.MaxModelLen) {
		t.Fatal("such a text is refused by its length")
	}
	ask := func(text string) error {
		r := e.request([]int32{5}, 1)
		r.Prompts = []Prompt{{Text: text}}
		_, err := e.serve(r, &testConn{})
		return err
	}
	defer debug.SetGCPercent(debug.SetGCPercent(5)) // what is measured is to be in use
	peak := heaptest.Peak(func() {
		var wg sync.WaitGroup
		for range requests {
			wg.Go(func() {
				var f *Failure
				if err := ask(strings.Repeat("a", size)); err != nil && !errors.As(err, &f) {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			if err := ask("once upon a time"); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
	})
	t.Logf("%d texts of %d KiB took %d KiB at most", requests, size>>10, peak>>10)
	// Texts, copies and ids, and of four pieces the 30 bytes a byte: at once it would be forty.
	if most := int64(requests*size*4 + 4*30*size); peak > most {
		t.Errorf("%d texts of %d KiB took %d KiB, want %d at most", requests, size>>10, peak>>10, most>>10)
	}
	e.quiet()
}
