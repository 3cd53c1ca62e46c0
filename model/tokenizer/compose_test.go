package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

// nfcAlphabet has characters that compose with each other, reorder, or must not compose.
var nfcAlphabet = []rune("aeiou AEO<>= " + "\u0300\u0301\u0302\u0308\u0323\u0327\u0338\u0345\u05b0\u0f71\u0f72\u0f73" +
	"éệǖ≯Å\u212b\u0344\u0958\u0928\u093c\u0929" + "\u1100\u1161\u11a8가각힣" + "\u3099かが\U0001D15E\U0001D157\U0001D165\u09c7\u09be" + "漢\uFA1A\u0340\u2126")

// TestComposerMatchesNFC compares with x/text, on runs of marks short enough that x/text does not break them.
func TestComposerMatchesNFC(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		n := rng.IntN(12)
		if rng.IntN(20) == 0 {
			n = rng.IntN(600) // crosses chunks
		}
		text := make([]rune, n)
		marks := 0
		for i := range text {
			text[i] = nfcAlphabet[rng.IntN(len(nfcAlphabet))]
			if norm.NFC.PropertiesString(string(text[i])).BoundaryBefore() {
				marks = 0
			} else if marks++; marks > 8 {
				text[i], marks = 'x', 0
			}
		}
		if got, want := composed(string(text)), norm.NFC.String(string(text)); got != want {
			t.Fatalf("%+q\n got %+q\nwant %+q", string(text), got, want)
		}
	}
}

func composed(text string) string {
	var c composer
	c.begin(text)
	for {
		ticks := 1
		if c.step(&ticks) {
			return c.result()
		}
	}
}

// TestInertCharactersAreNormal: any of them one after another are NFC, and text of many scripts is made of them.
func TestInertCharactersAreNormal(t *testing.T) {
	var all []rune
	for r := rune(0); r < 1<<16; r++ {
		if inert()[r/64]>>(r%64)&1 != 0 {
			all = append(all, r)
		}
	}
	rng := rand.New(rand.NewPCG(5, 6))
	for range 10_000 {
		text := make([]rune, 40)
		for i := range text {
			text[i] = all[rng.IntN(len(all))]
		}
		if s := string(text); !allInert(s) || !norm.NFC.IsNormalString(s) {
			t.Fatalf("%+q: inert %v, NFC %v", s, allInert(s), norm.NFC.IsNormalString(s))
		}
	}
	for _, r := range nfcAlphabet {
		if s := "abcdefgh" + string(r) + "x"; allInert(s) && !norm.NFC.IsNormalString("e"+string(r)) {
			t.Errorf("%+q counts as inert and composes", r)
		}
	}
	for _, s := range []string{"Größe: élan, Ångström", "港务长把每一次到港都记在簿子里：船名。", "Привет", "ελληνικά", "안녕하세요", "カタカナ"} {
		if !allInert(s) {
			t.Errorf("%q takes the slow way", s)
		}
	}
	for _, s := range []string{"e\u0301", "\u212b", "\u1100\u1161", "か\u3099", "x\U0001D15E"} {
		if allInert(s) {
			t.Errorf("%+q counts as inert", s)
		}
	}
}

// TestComposerKeepsLongRunsOfMarks: x/text would put U+034F into them.
func TestComposerKeepsLongRunsOfMarks(t *testing.T) {
	got := composed("a" + strings.Repeat("\u0301\u0316", 1000) + "b")
	want := "á" + strings.Repeat("\u0316", 1000) + strings.Repeat("\u0301", 999) + "b"
	// á first takes the lower class: the marks below come before the 999 acutes, and one acute composes.
	if got != want {
		t.Errorf("got %d bytes %.40q, want %d bytes %.40q", len(got), got, len(want), want)
	}
}
