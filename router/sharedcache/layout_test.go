package sharedcache

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"signalbox/router/cost"
)

// Names of pages as SGLang computes them.
func TestPagesAreNamedAsSGLangNamesThem(t *testing.T) {
	for _, c := range []struct {
		tokens []uint32
		size   int
		eagle  bool
		want   []string
	}{
		{[]uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 4, false, []string{
			"cf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b72", "4ebfa8a1f3c341517621838c6e1b9aa350307e3f00b3cbd1a07ef740f54396d6"}},
		{[]uint32{10, 11, 12, 13, 14}, 2, true, []string{
			"4bde82677ba8b6de843da1713b58a439678ec01b642bbdcffec4acfa81b0ec8e", "75ab93a767bad1e254945d1a0ccfa1588d6ebb803303e412d984baedcbbf04b9"}},
		{[]uint32{1, 2, 3}, 4, false, nil},
		{[]uint32{1, 2, 3, 4}, 4, true, nil},
		{nil, 4, true, nil},
	} {
		var got []string
		for _, page := range AppendPages(nil, c.tokens, c.size, c.eagle) {
			got = append(got, hex.EncodeToString(page[:]))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v by %d, eagle %v: %v, want %v", c.tokens, c.size, c.eagle, got, c.want)
		}
	}
}

func TestKeysOfEveryLayout(t *testing.T) {
	page := Page{0xab}
	name := hex.EncodeToString(page[:])
	for _, c := range []struct {
		layout Layout
		want   string
	}{
		{Layout{TensorParallel: 1, PipelineParallel: 1}, "P_0_k P_0_v"},
		{Layout{TensorParallel: 2, PipelineParallel: 2}, "P_0_0_k P_0_0_v P_1_0_k P_1_0_v P_0_1_k P_0_1_v P_1_1_k P_1_1_v"},
		{Layout{TensorParallel: 2, PipelineParallel: 1, Tag: "tag"}, "tag_P_0_k tag_P_0_v tag_P_1_k tag_P_1_v"},
		{Layout{TensorParallel: 2, TensorParallelLCM: 4, SplitHeads: true}, "P_0_k P_0_v P_1_k P_1_v P_2_k P_2_v P_3_k P_3_v"},
		{Layout{TensorParallel: 2, TensorParallelLCM: 4}, "P_0_k P_0_v P_1_k P_1_v"},
		{Layout{TensorParallel: 4, TensorParallelLCM: 2, SplitHeads: true}, "P_0_k P_0_v P_1_k P_1_v P_2_k P_2_v P_3_k P_3_v"},
		{Layout{TensorParallel: 8, MLA: true}, "P__k"},
		{Layout{TensorParallel: 8, PipelineParallel: 2, MLA: true}, "P_0_k P_1_k"},
		{Layout{}, "P_0_k P_0_v"},
	} {
		got := c.layout.AppendKeys(nil, page)
		if want := strings.Fields(strings.ReplaceAll(c.want, "P", name)); !slices.Equal(got, want) {
			t.Errorf("%+v: keys %v, want %v", c.layout, got, want)
		}
		if uint64(len(got)) != c.layout.Parts() {
			t.Errorf("%+v: %d keys and %d parts", c.layout, len(got), c.layout.Parts())
		}
		for i, key := range got {
			if p, part, ok := c.layout.Part(key); !ok || p != page || part != i {
				t.Errorf("%+v: %s is part %d (%v) of %x, want %d of %x", c.layout, key, part, ok, p, i, page)
			}
		}
	}
}

func TestKeysOfSomebodyElse(t *testing.T) {
	name := strings.Repeat("0a", 32)
	plain := Layout{TensorParallel: 2}
	for _, key := range []string{"", name, name + "_", name + "_0", name + "__k", name + "_2_k", name + "_00_k", name + "_+1_k", name + "_0_0_k", name + "_0_q",
		name[:62] + "_0_k", strings.ToUpper(name) + "_0_k", "x" + name[1:] + "_0_k", "tag_" + name + "_0_k", name + "-0_k", name + "_99999999999_k"} {
		if _, part, ok := plain.Part(key); ok {
			t.Errorf("%q is taken for part %d", key, part)
		}
	}
	latent := Layout{MLA: true}
	for _, key := range []string{name + "__v", name + "_0_k", name + "_k"} {
		if _, _, ok := latent.Part(key); ok {
			t.Errorf("%q is taken for a part of a latent page", key)
		}
	}
	tagged := Layout{Tag: "t"}
	if _, _, ok := tagged.Part(name + "_0_k"); ok {
		t.Error("a key without the tag is taken")
	}
}

func TestLayoutsThatAreNotRight(t *testing.T) {
	const right = `{"backend":"mooncake","page_size":4,"tp_size":1,"pp_size":1,"is_mla_model":false,"is_eagle":false,"tp_lcm_size":null,"should_split_heads":false,"extra_backend_tag":null,"kv_events_endpoint":"tcp://h:1"}`
	layout, endpoint, err := ParseLayout([]byte(right))
	if err != nil || endpoint != "tcp://h:1" || layout != (Layout{Backend: "mooncake", PageSize: 4, TensorParallel: 1, PipelineParallel: 1}) {
		t.Fatalf("%+v, %q, %v", layout, endpoint, err)
	}
	for _, member := range []string{"backend", "page_size", "tp_size", "pp_size", "is_mla_model", "is_eagle", "should_split_heads"} {
		if _, _, err := ParseLayout([]byte(strings.Replace(right, member, "other", 1))); err == nil || !strings.Contains(err.Error(), member) {
			t.Errorf("without %s: %v", member, err)
		}
	}
	for _, change := range [][2]string{{`"page_size":4`, `"page_size":-4`}, {`"tp_size":1`, `"tp_size":"1"`}, {`"tp_size":1`, `"tp_size":4294967295`}, {`{`, `[`}} {
		if _, _, err := ParseLayout([]byte(strings.Replace(right, change[0], change[1], 1))); err == nil {
			t.Errorf("%s is accepted", change[1])
		}
	}
	for _, bad := range []Layout{{Backend: "file", PageSize: 4}, {Backend: Backend}, {Backend: Backend, PageSize: 8}} {
		if bad.check(4) == nil {
			t.Errorf("%+v is accepted for blocks of 4", bad)
		}
	}
}

// Whatever comes and goes in whatever order, a page is there exactly when all its objects are.
func TestIndexAgainstASetOfKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layout := Layout{Backend: Backend, PageSize: 2, TensorParallel: rapid.Uint32Range(0, 40).Draw(t, "tp"), PipelineParallel: rapid.Uint32Range(0, 3).Draw(t, "pp"),
			MLA: rapid.Bool().Draw(t, "mla"), Eagle: rapid.Bool().Draw(t, "eagle"), SplitHeads: rapid.Bool().Draw(t, "split"),
			TensorParallelLCM: rapid.Uint32Range(0, 6).Draw(t, "lcm"), Tag: rapid.SampledFrom([]string{"", "t", "a_b"}).Draw(t, "tag")}
		tokens := rapid.SliceOfN(rapid.Uint32Range(0, 3), 0, 14).Draw(t, "tokens")
		pages := AppendPages(nil, tokens, 2, layout.Eagle)
		var keys []string
		for _, page := range pages {
			keys = layout.AppendKeys(keys, page)
		}
		c := New(Options{BlockSize: 2})
		c.index.reset(int(layout.Parts()))
		c.shown = &layout
		there := make(map[string]bool)
		if rapid.Bool().Draw(t, "full") {
			for _, key := range keys {
				page, part, _ := layout.Part(key)
				c.index.stored(page, part)
				there[key] = true
			}
		}
		for range rapid.IntRange(0, 40).Draw(t, "changes") {
			if len(keys) == 0 {
				break
			}
			key := rapid.SampledFrom(keys).Draw(t, "key")
			page, part, ok := layout.Part(key)
			if !ok {
				t.Fatalf("%s is nobody's", key)
			}
			if rapid.Bool().Draw(t, "stored") {
				c.index.stored(page, part)
				there[key] = true
			} else {
				c.index.removed(page, part)
				delete(there, key)
			}
		}
		if c.Objects() != len(there) {
			t.Fatalf("%d objects, want %d", c.Objects(), len(there))
		}
		held := make([]bool, len(pages))
		for _, run := range c.AppendRuns([]cost.Range{}, tokens) {
			if run.Start >= run.End || run.Start > 0 && held[run.Start-1] {
				t.Fatalf("run %v", run)
			}
			for at := run.Start; at < run.End; at++ {
				held[at] = true
			}
		}
		for i, page := range pages {
			want := true
			for _, key := range layout.AppendKeys(nil, page) {
				want = want && there[key]
			}
			if held[i] != want {
				t.Fatalf("page %d held: %v, want %v", i, held[i], want)
			}
		}
	})
}

// What leaves makes room for what comes: churn does not grow the index.
func TestSlotsAreUsedAgain(t *testing.T) {
	layout := Layout{TensorParallel: 1, PipelineParallel: 1}
	var x index
	x.reset(int(layout.Parts()))
	for i := range 10_000 {
		page := Page{byte(i), byte(i >> 8)}
		x.stored(page, 0)
		x.stored(page, 1)
		if !x.complete(page) {
			t.Fatal(fmt.Sprint("page ", i, " is not there"))
		}
		x.removed(page, 1)
		x.removed(page, 0)
	}
	if x.objects != 0 || len(x.slots) != 0 || len(x.held) != 1 {
		t.Errorf("%d objects, %d pages, %d slots", x.objects, len(x.slots), len(x.held))
	}
}
