package pipeline

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"signalbox/inference"
	"signalbox/preprocess/tokenizer"
	"signalbox/worker/builtin"
)

// cut is the plain way to apply stop strings: it looks at the text after each byte and stops at the first end of a stop string,
// the longest one where several end there.
func cut(text string, stops []string, include bool) (shown, matched string, ok bool) {
	for end := 1; end <= len(text); end++ {
		longest := ""
		for _, stop := range stops {
			if strings.HasSuffix(text[:end], stop) && len(stop) > len(longest) {
				longest = stop
			}
		}
		if longest == "" {
			continue
		}
		if include {
			return text[:end], longest, true
		}
		return text[:end-len(longest)], longest, true
	}
	return text, "", false
}

// pieces draws a text of few letters, so that stop strings occur and overlap, in pieces.
func pieces(t *rapid.T) []string {
	return rapid.SliceOfN(rapid.StringOfN(rapid.SampledFrom([]rune("aaaabbé😀")), 0, 5, -1), 0, 12).Draw(t, "pieces")
}

func stops(t *rapid.T) []string {
	return rapid.SliceOfN(rapid.StringOfN(rapid.SampledFrom([]rune("aaaabbé😀")), 1, 4, -1), 0, 4).Draw(t, "stops")
}

func TestStopStringsAgreeWithThePlainWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts, list, include := pieces(t), stops(t), rapid.Bool().Draw(t, "include")
		whole, matched, ok := cut(strings.Join(parts, ""), list, include)
		s := newStopStrings(list, include)
		shown := ""
		for i, part := range parts {
			text, match, hit := s.feed(part)
			shown += text
			if !strings.HasPrefix(whole, shown) {
				t.Fatalf("%q was shown, %q is right", shown, whole)
			}
			if hit {
				if !ok || match != matched || shown != whole {
					t.Fatalf("stopped at %q with %q shown; want %q and %q", match, shown, matched, whole)
				}
				return
			}
			if soFar := strings.Join(parts[:i+1], ""); include && shown != soFar {
				t.Fatalf("%q is held back though stop strings are shown", soFar[len(shown):])
			} else if !include {
				held := soFar[len(shown):]
				begins := held == ""
				for _, stop := range list {
					begins = begins || strings.HasPrefix(stop, held)
				}
				if !begins {
					t.Fatalf("%q is held back and begins no stop string", held)
				}
			}
		}
		shown += s.flush()
		if ok || shown != whole {
			t.Fatalf("%q was shown and nothing found; want %q, found %v", shown, whole, ok)
		}
	})
}

// TestAnswersAgreeWithThePlainWay sends texts through a whole run: in items of several tokens, cut anywhere, also inside
// characters, with stop strings, stop tokens that are shown or not, an end token and a least length.
func TestAnswersAgreeWithThePlainWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(pieces(t), "")
		tokens := ids(text)
		if rapid.Bool().Draw(t, "ends") {
			tokens = append(tokens, 256)
			tokens = append(tokens, ids("never shown")...)
		}
		list, include := stops(t), rapid.Bool().Draw(t, "include")
		least := rapid.IntRange(0, 6).Draw(t, "least")
		var items []*inference.Output
		for rest := tokens; len(rest) > 0; {
			n := rapid.IntRange(1, min(5, len(rest))).Draw(t, "tokens")
			items = append(items, &inference.Output{TokenIDs: rest[:n:n]})
			rest = rest[n:]
		}
		items = append(items, finish(inference.FinishLength))
		b := newBench(&script{items: items})
		got := runBench(t, b, job(func(r *inference.Request) {
			r.Stop.Strings = list
			r.Stop.MinTokens = ptr(uint32(least))
			r.Sampling.IncludeStopString = &include
		}))
		want, reason := plainAnswer(tokens, list, include, least)
		if got.err != nil || got.text != want || got.finish != reason {
			t.Fatalf("%q, %v, %v; want %q, %v", got.text, got.finish, got.err, want, reason)
		}
		for _, delta := range got.deltas {
			if !utf8.ValidString(delta) {
				t.Fatalf("%q is half a character", delta)
			}
		}
		if b.ledger.open != 0 || b.workers.streams() != 0 {
			t.Fatalf("%d placements and %d streams are open", b.ledger.open, b.workers.streams())
		}
	})
}

func runBench(t *rapid.T, b *bench, j *Job) answer {
	run, err := b.Generate(context.Background(), j)
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	return drainRun(context.Background(), run)
}

// plainAnswer is what an answer of these tokens says: the texts of the least number of tokens as they are, the rest up to the
// end token or a stop string.
func plainAnswer(tokens []uint32, list []string, include bool, least int) (string, inference.FinishReason) {
	decoder := &wholeCharacters{}
	free, judged := "", ""
	for i, id := range tokens {
		if id == 256 {
			if i+1 <= least {
				continue // too early
			}
			judged += decoder.Flush()
			if shown, _, ok := cut(judged, list, include); ok {
				return free + shown, inference.FinishStop
			}
			return free + judged, inference.FinishEOS
		}
		text := decoder.Step(id)
		if i+1 <= least {
			free += text
			continue
		}
		judged += text
		if shown, _, ok := cut(judged, list, include); ok {
			return free + shown, inference.FinishStop
		}
	}
	judged += decoder.Flush()
	if shown, _, ok := cut(judged, list, include); ok {
		return free + shown, inference.FinishStop
	}
	return free + judged, inference.FinishLength
}

// TestNoCharacterIsBroken streams random tokens of a byte-level vocabulary, whose tokens hold parts of characters: each delta is
// whole, and all of them together are what the tokenizer makes of the tokens at once.
func TestNoCharacterIsBroken(t *testing.T) {
	dir := t.TempDir()
	if err := builtin.Write(dir); err != nil {
		t.Fatal(err)
	}
	loaded, err := tokenizer.Load(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	encoded := loaded.Encode(nil, "naïve 😀 日本語 пример — and so on", false)
	rapid.Check(t, func(t *rapid.T) {
		var tokens []uint32
		var items []*inference.Output
		for range rapid.IntRange(1, 20).Draw(t, "items") {
			var item []uint32
			for range rapid.IntRange(1, 3).Draw(t, "tokens") {
				id := rapid.SampledFrom(encoded).Draw(t, "id")
				if rapid.Bool().Draw(t, "any") {
					id = rapid.Uint32Range(0, 255).Draw(t, "byte") // the vocabulary begins with the single bytes
				}
				item = append(item, id)
			}
			items = append(items, &inference.Output{TokenIDs: item})
			tokens = append(tokens, item...)
		}
		items = append(items, finish(inference.FinishLength))
		b := newBench(&script{items: items})
		b.Model.Tokenizer = realTokenizer{loaded}
		b.Model.EOSTokenIDs = nil
		got := runBench(t, b, job(nil))
		decoder := loaded.NewDecoder(ids("prompt"), true)
		want := ""
		for _, id := range tokens {
			want += decoder.Step(id)
		}
		want += decoder.Flush()
		if got.err != nil || got.text != want {
			t.Fatalf("%q, %v; want %q", got.text, got.err, want)
		}
		for _, delta := range got.deltas {
			if !utf8.ValidString(delta) {
				t.Fatalf("%q in %q is half a character", delta, got.deltas)
			}
		}
	})
}

type realTokenizer struct{ *tokenizer.Tokenizer }

func (t realTokenizer) NewDecoder(prompt []uint32, skip bool) Decoder {
	return t.Tokenizer.NewDecoder(prompt, skip)
}

// TestTextOfTheWorkerIsTaken: a worker that detokenises itself is believed, and its text is searched for stop strings all the
// same.
func TestTextOfTheWorkerIsTaken(t *testing.T) {
	spoken := func(text string) *inference.Output {
		return &inference.Output{TokenIDs: ids("??"), Text: text, HasText: true}
	}
	b := newBench(&script{items: []*inference.Output{spoken("one E"), spoken("ND two")}, hang: true})
	got := b.run(t, job(func(r *inference.Request) { r.Stop.Strings = []string{"END"} }))
	if got.err != nil || got.text != "one " || got.finish != inference.FinishStop || got.stop.Text != "END" {
		t.Errorf("%+v", got)
	}
	b = newBench(&script{items: []*inference.Output{spoken("one E"), {Text: "", HasText: true, Finish: inference.FinishLength}}})
	if got := b.run(t, job(func(r *inference.Request) { r.Stop.Strings = []string{"END"} })); got.text != "one E" || got.finish != inference.FinishLength {
		t.Errorf("held back at the end: %+v", got)
	}
}

// TestAnEndlessAnswerIsEnded: a worker that never stops fills no memory.
func TestAnEndlessAnswerIsEnded(t *testing.T) {
	piece := &inference.Output{TokenIDs: ids("?"), Text: strings.Repeat("x", 16<<20), HasText: true}
	items := make([]*inference.Output, 100)
	for i := range items {
		items[i] = piece
	}
	b := newBench(&script{items: items, hang: true})
	run, err := b.Generate(t.Context(), job(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	total := 0
	for err == nil {
		var delta *Delta
		if delta, err = run.Next(t.Context()); err == nil {
			total += len(delta.Content)
		}
	}
	if inference.KindOf(err) != inference.ProtocolViolation || total > maxText {
		t.Errorf("%d bytes, then %v", total, err)
	}
	b.ledger.settled(t, "1 Protocol")
	if b.workers.streams() != 0 {
		t.Error("the worker may go on")
	}
}

// TestStopTokens covers tokens that end an answer: the model's, the client's, and those that are shown.
func TestStopTokens(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*inference.Request)
		text   string
		finish inference.FinishReason
		stop   inference.StopReason
	}{
		"the client's":       {change: func(r *inference.Request) { r.Stop.TokenIDs = []uint32{'c'} }, text: "ab", finish: inference.FinishStop, stop: inference.StopReason{TokenID: 'c', IsToken: true}},
		"the client's, late": {change: func(r *inference.Request) { r.Stop.TokenIDs = []uint32{'c'}; r.Stop.MinTokens = ptr(uint32(5)) }, text: "abde", finish: inference.FinishEOS},
		"shown":              {change: func(r *inference.Request) { r.Stop.VisibleTokenIDs = []uint32{'c'} }, text: "abc", finish: inference.FinishStop, stop: inference.StopReason{TokenID: 'c', IsToken: true}},
		"the model's":        {change: func(*inference.Request) {}, text: "abcde", finish: inference.FinishEOS},
		"ignored":            {change: func(r *inference.Request) { r.Stop.IgnoreEOS = ptr(true) }, text: "abcdefg", finish: inference.FinishLength},
	} {
		tokens := append(append(ids("abcde"), 256), ids("fg")...)
		b := newBench(&script{items: []*inference.Output{{TokenIDs: tokens}, finish(inference.FinishLength)}})
		if got := b.run(t, job(test.change)); got.err != nil || got.text != test.text || got.finish != test.finish || got.stop != test.stop {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
