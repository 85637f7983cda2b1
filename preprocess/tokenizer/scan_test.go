package tokenizer

import (
	"slices"
	"strings"
	"testing"

	"github.com/dlclark/regexp2"
	"pgregory.net/rapid"
)

// awkward holds characters of all classes that the patterns tell apart, some that were added to Unicode late, and letters of
// contractions.
var awkward = []string{" ", " ", " ", "a", "b", "Z", "Q", "s", "t", "m", "d", "re", "VE", "ll", "'", "'", "ſ", "1", "23", "٣", "Ⅷ", "²", ".", "!",
	"/", "//", "$", "_", "-", "\n", "\r", "\r\n", "\t", "\v", "\u0085", "\u00a0", "\u3000", "\u2028", "é", "É", "ǅ", "ʰ", "א", "中", "国", "あ", "ー", "・",
	"\u0301", "\u0308", "ि", "😀", "\u200d", "\x00", "\u0378", "\u2029", "«", "€", "￼", "𝔸", "𐐀", "Ж", "ж", "ß", "ñ"}

// plain holds ASCII of all classes.
var plain = []string{" ", " ", "a", "b", "Z", "s", "re", "Ve", "ll", "'", "1", "23", "4567", ".", "/", "-", "\n", "\r\n", "\t", "word", "Words", "    ", "("}

var tricky = rapid.Custom(func(t *rapid.T) string {
	s := ""
	for _, part := range rapid.SliceOfN(rapid.SampledFrom(awkward), 0, 30).Draw(t, "parts") {
		s += part
	}
	// What scanners look at in one go is longer than that. Left to itself, that few are drawn would be the rule.
	least := rapid.SampledFrom([]int{0, 100}).Draw(t, "least")
	for _, part := range rapid.SliceOfN(rapid.SampledFrom(plain), least, 200).Draw(t, "plain parts") {
		s += part
	}
	return s
})

// knownExpressions are all patterns that have a scanner.
var knownExpressions = func() (list []string) {
	for _, numbers := range []string{`|\p{N}|`, `|\p{N}{1,3}|`} {
		list = append(list,
			contractionPart+`|`+wordPart+`\p{L}+`+numbers+restPart,
			contractionPart+`|`+wordPart+`[\p{L}\p{M}]+`+numbers+restMarksPart,
			casedPart1+contractionPart+`?|`+casedPart2+contractionPart+`?`+numbers+restSlashPart,
			casedPart1+`|`+casedPart2+numbers+restSlashPart)
	}
	return append(list, gpt2Pattern)
}()

// expressionFor compiles a pattern for the engine that unknown patterns go to. It has another rule for folding the long s, which is put
// right here.
func expressionFor(t testing.TB, source string) pattern {
	t.Helper()
	source = strings.ReplaceAll(source, "(?i:'s|", "(?i:'[sſ]|")
	p, err := compileExpression(source)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestScannersCutAsTheExpressionsDo(t *testing.T) {
	for _, source := range knownExpressions {
		scan := knownScanner(source)
		if scan == nil {
			t.Fatalf("%s has no scanner", source)
		}
		expression := expressionFor(t, source)
		rapid.Check(t, func(t *rapid.T) {
			s := tricky.Draw(t, "text")
			if got, want := scanned(scan).find(s), expression.find(s); !slices.Equal(got, want) {
				t.Fatalf("%s on %q: %v, want %v", source, s, got, want)
			}
		})
	}
}

func TestDeepseekScannerCutsAsItsThreeExpressionsDo(t *testing.T) {
	var steps []splitter
	for _, source := range []string{deepseekDigits, deepseekCJK, deepseekSigns} {
		steps = append(steps, splitBy(expressionFor(t, source), isolated, false))
	}
	split := splitSequence(steps)
	scan := windowed(deepseekWindow(), deepseekRules(), deepseek())
	rapid.Check(t, func(t *rapid.T) {
		s := tricky.Draw(t, "text")
		var want []match
		if s != "" {
			for _, piece := range split(nil, text{s: s}) {
				want = append(want, match{piece.base, piece.base + len(piece.s)})
			}
		}
		if got := scanned(scan).find(s); !slices.Equal(got, want) {
			t.Fatalf("%q: %v, want %v", s, got, want)
		}
	})
}

// TestClassesAgreeWithTheEngine compares every character's classes, except for characters newer than the engine's tables.
func TestClassesAgreeWithTheEngine(t *testing.T) {
	later := func(r rune) bool {
		return slices.ContainsFunc(laterCharacters, func(c struct {
			low, high rune
			class     class
		}) bool {
			return c.low <= r && r <= c.high
		})
	}
	table := characters()
	for source, want := range map[string]class{`\p{L}`: letter, `\p{N}`: number, `\s`: space, `\p{M}`: mark, `[\p{P}\p{S}]`: sign,
		`[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`: upper, `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`: lower, `[\r\n]`: newline, deepseekCJK: cjk} {
		re := regexp2.MustCompile("^"+source, regexp2.Unicode)
		for r := rune(0); r <= 0x3FFFF; r++ {
			if r >= 0xD800 && r < 0xE000 || later(r) || r > 0x1000 && r%7 != 0 && r < 0xF000 || r > 0x11000 && r%31 != 0 {
				continue
			}
			matches, err := re.MatchRunes([]rune{r})
			if err != nil {
				t.Fatal(err)
			}
			if got := table.of(r)&want != 0; got != matches {
				t.Fatalf("%U is %v for %s, want %v", r, got, source, matches)
			}
		}
	}
}

func FuzzScanners(f *testing.F) {
	for _, s := range awkward {
		f.Add(s + " x" + s)
	}
	type known struct {
		source     string
		scan       scanner
		expression pattern
	}
	var list []known
	for _, source := range knownExpressions {
		list = append(list, known{source, knownScanner(source), expressionFor(f, source)})
	}
	f.Fuzz(func(t *testing.T, s string) {
		s = valid(s)
		for _, k := range list {
			if got, want := scanned(k.scan).find(s), k.expression.find(s); !slices.Equal(got, want) {
				for _, r := range s {
					if table := characters(); table.of(r) != slowClass(r)&^cjk|table.of(r)&cjk {
						t.Skip("a character that the engine does not know yet")
					}
				}
				t.Fatalf("%s on %q: %v, want %v", k.source, s, got, want)
			}
		}
	})
}
