package kvhash_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"signalbox/internal/golden"
	"signalbox/kvhash"
)

// goldenCase is the union of the fields of all hashing recordings.
type goldenCase struct {
	Kind           string
	Name           string
	Tokens         []uint32
	BlockSize      int               `json:"block_size"`
	LoRA           string            `json:"lora_name"`
	CacheNamespace string            `json:"cache_namespace"`
	Eagle          bool              `json:"is_eagle"`
	BlockObjects   []*goldenBlock    `json:"block_mm_infos"`
	Objects        []goldenObject    `json:"mm_objects"`
	KeyHex         string            `json:"key_hex"`
	KeyID          string            `json:"key_id"`
	Model          string            `json:"model_name"`
	RoutingGroup   string            `json:"routing_group"`
	ObjectHashes   []uint64          `json:"mm_hashes"`
	Runs           []goldenRun       `json:"mm_info"`
	Expect         goldenExpectation `json:"expect"`
}

type goldenBlock struct {
	Objects []goldenObject `json:"mm_objects"`
}

type goldenObject struct {
	Hash    uint64   `json:"mm_hash"`
	Offsets [][2]int `json:"offsets"`
}

type goldenRun struct {
	Hash   uint64 `json:"mm_hash"`
	Offset int
	Length int
}

type goldenExpectation struct {
	Blocks       []uint64       `json:"block_hashes"`
	Sequence     []uint64       `json:"sequence_hashes"`
	BlockSeed    uint64         `json:"block_seed"`
	ChainSeed    uint64         `json:"chain_seed"`
	BlockObjects []*goldenBlock `json:"block_mm_infos"`
	PadValues    []uint32       `json:"pad_values"`
	Salt         uint64         `json:"salt_hash"`
	Lineage      []string       `json:"positional_lineage_hashes_hex"`
}

func (c goldenCase) scope() kvhash.Scope {
	return kvhash.Scope{BlockSize: c.BlockSize, LoRA: c.LoRA, CacheNamespace: c.CacheNamespace, Eagle: c.Eagle}
}

func objects(recorded []goldenObject) []kvhash.Object {
	var list []kvhash.Object
	for _, object := range recorded {
		converted := kvhash.Object{Hash: object.Hash}
		for _, offset := range object.Offsets {
			converted.Offsets = append(converted.Offsets, kvhash.Range{Start: offset[0], End: offset[1]})
		}
		list = append(list, converted)
	}
	return list
}

func blockObjects(recorded []*goldenBlock) [][]kvhash.Object {
	var list [][]kvhash.Object
	for _, block := range recorded {
		if block == nil {
			list = append(list, nil)
			continue
		}
		list = append(list, objects(block.Objects))
	}
	return list
}

func readCases(t testing.TB, name string) []goldenCase {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(golden.Dir(t, "hashing"), name))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []goldenCase }
	if err := json.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) == 0 {
		t.Fatalf("%s has no cases", name)
	}
	return file.Cases
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s differ (-want +got):\n%s", what, diff)
	}
}

// A wrong identity here means that no prompt ever finds its cached prefix on a real worker.
func TestGoldenBlocks(t *testing.T) {
	for _, c := range readCases(t, "block_hashes.json") {
		t.Run(c.Name, func(t *testing.T) {
			hasher, err := kvhash.New(c.scope())
			if err != nil {
				if len(c.Expect.Blocks) != 0 {
					t.Fatal(err)
				}
				return
			}
			locals := hasher.AppendBlocksWithObjects(nil, c.Tokens, blockObjects(c.BlockObjects))
			equal(t, "block hashes", locals, c.Expect.Blocks)
			equal(t, "sequence hashes", hasher.AppendSequence(nil, locals), c.Expect.Sequence)
			if len(c.BlockObjects) == 0 {
				equal(t, "plain block hashes", hasher.AppendBlocks(nil, c.Tokens), c.Expect.Blocks)
			}
		})
	}
}

func TestGoldenObjectSplit(t *testing.T) {
	for _, c := range readCases(t, "mm_request_split.json") {
		t.Run(c.Name, func(t *testing.T) {
			hasher, err := kvhash.New(c.scope())
			if err != nil {
				t.Fatal(err)
			}
			split := hasher.SplitObjects(objects(c.Objects), len(c.Tokens))
			equal(t, "block objects", split, blockObjects(c.Expect.BlockObjects))
			locals := hasher.AppendBlocksWithObjects(nil, c.Tokens, split)
			equal(t, "block hashes", locals, c.Expect.Blocks)
			equal(t, "sequence hashes", hasher.AppendSequence(nil, locals), c.Expect.Sequence)
		})
	}
}

func TestGoldenPadValues(t *testing.T) {
	for _, c := range readCases(t, "mm_pad_values.json") {
		var got []uint32
		for _, hash := range c.ObjectHashes {
			got = append(got, kvhash.PadValue(hash))
		}
		equal(t, c.Name, got, c.Expect.PadValues)
	}
}

// Routers that share a tracking key but derive other numbers count each other's requests as different prompts.
func TestGoldenKeyedTracking(t *testing.T) {
	for _, c := range readCases(t, "keyed_tracking.json") {
		t.Run(c.Name, func(t *testing.T) {
			raw, err := hex.DecodeString(c.KeyHex)
			if err != nil {
				t.Fatal(err)
			}
			key, err := kvhash.NewTrackingKey(raw, c.KeyID)
			if err != nil {
				t.Fatal(err)
			}
			hasher, err := key.Hasher(c.Model, c.RoutingGroup, c.scope())
			if err != nil {
				t.Fatal(err)
			}
			block, chain := hasher.Seeds()
			equal(t, "block seed", block, c.Expect.BlockSeed)
			equal(t, "chain seed", chain, c.Expect.ChainSeed)
			locals := hasher.AppendBlocksWithObjects(nil, c.Tokens, blockObjects(c.BlockObjects))
			equal(t, "sequence hashes", hasher.AppendSequence(nil, locals), c.Expect.Sequence)
		})
	}
}

func TestGoldenUniversalBlocks(t *testing.T) {
	for _, c := range readCases(t, "universal_blocks.json") {
		t.Run(c.Name, func(t *testing.T) {
			universal, err := kvhash.NewUniversal(c.scope())
			if err != nil {
				t.Fatal(err)
			}
			var runs []kvhash.PlaceholderRun
			for _, run := range c.Runs {
				runs = append(runs, kvhash.PlaceholderRun(run))
			}
			seed, _ := universal.Hasher().Seeds()
			equal(t, "salt", seed, c.Expect.Salt)
			locals, err := universal.AppendBlocks(nil, c.Tokens, runs)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "block hashes", locals, c.Expect.Blocks)
			sequence := universal.Hasher().AppendSequence(nil, locals)
			equal(t, "sequence hashes", sequence, c.Expect.Sequence)
			var lineage []string
			for i, hash := range sequence {
				parent := uint64(0)
				if i > 0 {
					parent = sequence[i-1]
				}
				packed, err := kvhash.NewLineage(i, hash, parent)
				if err != nil {
					t.Fatal(err)
				}
				lineage = append(lineage, packed.String())
			}
			equal(t, "lineage hashes", lineage, c.Expect.Lineage)
		})
	}
}
