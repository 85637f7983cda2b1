package verify_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"signalbox/internal/golden"
	"signalbox/verify"
)

// runners of the kinds whose recordings are plain JSON files.
var jsonRunners = map[string]verify.Runner{"hashing": verify.Hashing, "indexer": verify.Indexer}

// A difference here means that a prompt does not find its cached prefix, or finds it where it is not.
func TestHashingAndIndexer(t *testing.T) {
	for kind, run := range jsonRunners {
		files, err := filepath.Glob(filepath.Join(golden.Dir(t, kind), "*.json"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no recordings of kind %s: %v", kind, err)
		}
		for _, file := range files {
			t.Run(kind+"/"+filepath.Base(file), func(t *testing.T) {
				result := run(file)
				for _, failure := range result.Failures {
					t.Error(failure)
				}
				if result.Passed == 0 {
					t.Error("nothing was checked")
				}
			})
		}
	}
}

// A check that passes whatever is recorded checks nothing: each kind of recorded value is changed, and must be missed.
func TestChangedExpectationFails(t *testing.T) {
	for _, c := range []struct{ kind, file, from, to string }{
		{"hashing", "block_hashes.json", `"block_hashes": [16408750942692177291`, `"block_hashes": [16408750942692177292`},
		{"hashing", "block_hashes.json", `"sequence_hashes": [16408750942692177291`, `"sequence_hashes": [1640875094269217729`},
		{"hashing", "keyed_tracking.json", `"block_seed": 18195031674076271517`, `"block_seed": 18195031674076271518`},
		{"hashing", "keyed_tracking.json", `"chain_seed": 8617989506309882921`, `"chain_seed": 8617989506309882922`},
		{"hashing", "mm_pad_values.json", `"pad_values": [1000000`, `"pad_values": [1000001`},
		{"hashing", "mm_request_split.json", `"block_mm_infos": [{"mm_objects": [{"mm_hash": 111, "offsets": [[5, 8]]}]}`, `"block_mm_infos": [{"mm_objects": [{"mm_hash": 111, "offsets": [[5, 7]]}]}`},
		{"hashing", "universal_blocks.json", `"positional_lineage_hashes_hex": ["000ff1b6`, `"positional_lineage_hashes_hex": ["000ff1b7`},
		{"hashing", "universal_blocks.json", `"salt_hash": 1337`, `"salt_hash": 1338`},
		{"hashing", "block_hashes.json", `"kind": "block"`, `"kind": "mystery"`},
		{"indexer", "prefix_index.json", `"expect": [{"worker_id": 1, "dp_rank": 0, "blocks": 5}]`, `"expect": [{"worker_id": 1, "dp_rank": 0, "blocks": 4}]`},
		{"indexer", "prefix_index.json", `"expect": []`, `"expect": [{"worker_id": 1, "dp_rank": 0, "blocks": 1}]`},
		{"indexer", "prefix_index.json", `"expect": "Failed to find parent block"`, `"expect": "ok"`},
		{"indexer", "prefix_index.json", `"expect": "Failed to find block"`, `"expect": "Failed to find parent block"`},
		{"indexer", "prefix_index.json", `"expect": [{"worker_id": 1, "dp_rank": 0, "parent_hash": null, "block_hash": 101, "tokens_hash": 101}`, `"expect": [{"worker_id": 1, "dp_rank": 0, "parent_hash": null, "block_hash": 101, "tokens_hash": 102}`},
		{"indexer", "quirks.json", `"exact": [{"worker_id": 1, "dp_rank": 0, "blocks": 5}]`, `"exact": [{"worker_id": 1, "dp_rank": 0, "blocks": 3}]`},
		{"indexer", "quirks.json", `"expect": "Invalid block sequence"`, `"expect": "ok"`},
		{"indexer", "tiers.json", `"host_pinned": [{"blocks": 1, "dp_rank": 0, "worker_id": 1}]`, `"host_pinned": [{"blocks": 2, "dp_rank": 0, "worker_id": 1}]`},
		{"indexer", "tiers.json", `"lower_tier": {"disk": [], "host_pinned"`, `"lower_tier": {"host_pinned"`},
		{"indexer", "tiers.json", `"op": "query"`, `"op": "ask"`},
	} {
		content, err := os.ReadFile(filepath.Join(golden.Dir(t, c.kind), c.file))
		if err != nil {
			t.Fatal(err)
		}
		changed := bytes.Replace(content, []byte(c.from), []byte(c.to), 1)
		if bytes.Equal(changed, content) {
			t.Errorf("%s holds no %s", c.file, c.from)
			continue
		}
		path := filepath.Join(t.TempDir(), c.file)
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		if result := jsonRunners[c.kind](path); len(result.Failures) != 1 || result.Passed == 0 && c.file != "mm_pad_values.json" {
			t.Errorf("%s with %s: %d passed, failures %q", c.file, c.to, result.Passed, result.Failures)
		}
	}
}

func TestHashingAndIndexerOutsideData(t *testing.T) {
	for _, content := range []string{``, `{}`, `{"cases":[],"scenarios":[]}`, `{"cases":[{}],"scenarios":[{}]}`, `[1]`,
		`{"cases":[{"kind":"block","block_size":0}],"scenarios":[{"steps":[{"op":"event"}]}]}`} {
		path := filepath.Join(t.TempDir(), "file.json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		for kind, run := range jsonRunners {
			if result := run(path); len(result.Failures) == 0 {
				t.Errorf("%s: %q passes", kind, content)
			}
		}
	}
	for kind, run := range jsonRunners {
		if result := run(t.TempDir()); len(result.Failures) == 0 {
			t.Errorf("%s: an empty folder passes", kind)
		}
		if result := run(filepath.Join(t.TempDir(), "absent")); len(result.Failures) == 0 {
			t.Errorf("%s: an absent path passes", kind)
		}
	}
}
