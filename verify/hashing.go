package verify

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"signalbox/kvhash"
)

// hashingCase is one recorded prompt and its identities; it has the fields of all kinds.
type hashingCase struct {
	Kind           string
	Name           string
	Tokens         []uint32
	BlockSize      int               `json:"block_size"`
	LoRA           string            `json:"lora_name"`
	CacheNamespace string            `json:"cache_namespace"`
	Eagle          bool              `json:"is_eagle"`
	BlockObjects   []*hashingBlock   `json:"block_mm_infos"`
	Objects        []hashingObject   `json:"mm_objects"`
	KeyHex         string            `json:"key_hex"`
	KeyID          string            `json:"key_id"`
	Model          string            `json:"model_name"`
	RoutingGroup   string            `json:"routing_group"`
	ObjectHashes   []uint64          `json:"mm_hashes"`
	Runs           []placeholderRun  `json:"mm_info"`
	Expect         hashingIdentities `json:"expect"`
}

type hashingBlock struct {
	Objects []hashingObject `json:"mm_objects"`
}

type hashingObject struct {
	Hash    uint64   `json:"mm_hash"`
	Offsets [][2]int `json:"offsets"`
}

type placeholderRun struct {
	Hash   uint64 `json:"mm_hash"`
	Offset int
	Length int
}

// hashingIdentities are what a case must come to; what is absent is not compared.
type hashingIdentities struct {
	Blocks       *[]uint64        `json:"block_hashes"`
	Sequence     *[]uint64        `json:"sequence_hashes"`
	BlockSeed    *uint64          `json:"block_seed"`
	ChainSeed    *uint64          `json:"chain_seed"`
	BlockObjects *[]*hashingBlock `json:"block_mm_infos"`
	PadValues    *[]uint32        `json:"pad_values"`
	Salt         *uint64          `json:"salt_hash"`
	Lineage      *[]string        `json:"positional_lineage_hashes_hex"`
}

// hashingRunners compute a case's identities, by its kind.
var hashingRunners = map[string]func(hashingCase) (hashingIdentities, error){
	"block":      hashBlocks,
	"keyed":      hashKeyed,
	"mm_request": hashRequest,
	"pad":        hashPads,
	"universal":  hashUniversal,
}

// Hashing checks recorded identities of blocks and prompts: one file, or all in a folder.
func Hashing(path string) Result { return jsonFiles(path, hashingFile) }

// jsonFiles runs one JSON file, or all of a folder.
func jsonFiles(path string, run func(path string) Result) Result {
	var sum Result
	info, err := os.Stat(path)
	if err != nil {
		sum.fail("%v", err)
		return sum
	}
	if !info.IsDir() {
		return run(path)
	}
	files, err := filepath.Glob(filepath.Join(path, "*.json"))
	if err != nil || len(files) == 0 {
		sum.fail("%s holds no recordings (*.json)", path)
	}
	for _, file := range files {
		sum.add(run(file))
	}
	return sum
}

// readJSON reads a file that is one JSON value.
func readJSON(path string, into any) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, into)
}

func hashingFile(path string) Result {
	var result Result
	var file struct{ Cases []hashingCase }
	if err := readJSON(path, &file); err != nil {
		result.fail("%s: %v", path, err)
		return result
	}
	if len(file.Cases) == 0 {
		result.fail("%s holds no cases", path)
	}
	for _, c := range file.Cases {
		if err := checkHashing(c); err != nil {
			result.fail("%s, %s: %v", filepath.Base(path), c.Name, err)
			continue
		}
		result.Passed++
	}
	return result
}

func checkHashing(c hashingCase) error {
	run := hashingRunners[c.Kind]
	if run == nil {
		return fmt.Errorf("cases of kind %q cannot be run", c.Kind)
	}
	got, err := run(c)
	if err != nil {
		return err
	}
	want := c.Expect
	compared := 0
	if err := firstError(
		sameList("block hashes", got.Blocks, want.Blocks, &compared),
		sameList("sequence hashes", got.Sequence, want.Sequence, &compared),
		sameList("pad values", got.PadValues, want.PadValues, &compared),
		sameList("lineage hashes", got.Lineage, want.Lineage, &compared),
		sameValue("block seed", got.BlockSeed, want.BlockSeed, &compared),
		sameValue("chain seed", got.ChainSeed, want.ChainSeed, &compared),
		sameValue("salt", got.Salt, want.Salt, &compared),
	); err != nil {
		return err
	}
	if want.BlockObjects != nil {
		compared++
		gotText, _ := json.Marshal(got.BlockObjects)
		wantText, _ := json.Marshal(want.BlockObjects)
		if string(gotText) != string(wantText) {
			return fmt.Errorf("objects of blocks are %s, recorded are %s", gotText, wantText)
		}
	}
	if compared == 0 {
		return fmt.Errorf("nothing is recorded that can be compared")
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// sameList compares a list with the recorded one, if there is one.
func sameList[T comparable](what string, got, want *[]T, compared *int) error {
	if want == nil {
		return nil
	}
	*compared++
	if got == nil {
		return fmt.Errorf("%s are recorded, but cases of this kind have none", what)
	}
	if !slices.Equal(*got, *want) {
		return fmt.Errorf("%s are %v, recorded are %v", what, *got, *want)
	}
	return nil
}

// sameValue compares a value with the recorded one, if there is one.
func sameValue[T comparable](what string, got, want *T, compared *int) error {
	if want == nil {
		return nil
	}
	*compared++
	if got == nil {
		return fmt.Errorf("%s is recorded, but cases of this kind have none", what)
	}
	if *got != *want {
		return fmt.Errorf("%s is %v, recorded is %v", what, *got, *want)
	}
	return nil
}

func (c hashingCase) scope() kvhash.Scope {
	return kvhash.Scope{BlockSize: c.BlockSize, LoRA: c.LoRA, CacheNamespace: c.CacheNamespace, Eagle: c.Eagle}
}

// hasher makes the case's hasher. A block size of 0 is recorded as a prompt without blocks; here it is an error, which comes to
// the same: a zero Hasher yields no blocks.
func (c hashingCase) hasher() (kvhash.Hasher, error) {
	if c.BlockSize == 0 {
		return kvhash.Hasher{}, nil
	}
	return kvhash.New(c.scope())
}

func hashingObjects(recorded []hashingObject) []kvhash.Object {
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

func hashBlocks(c hashingCase) (hashingIdentities, error) {
	hasher, err := c.hasher()
	if err != nil {
		return hashingIdentities{}, err
	}
	return c.identities(hasher), nil
}

// identities hashes the tokens with the objects that are recorded for each block.
func (c hashingCase) identities(hasher kvhash.Hasher) hashingIdentities {
	var objects [][]kvhash.Object
	for _, block := range c.BlockObjects {
		if block == nil {
			objects = append(objects, nil)
			continue
		}
		objects = append(objects, hashingObjects(block.Objects))
	}
	locals := hasher.AppendBlocksWithObjects(nil, c.Tokens, objects)
	sequence := hasher.AppendSequence(nil, locals)
	return hashingIdentities{Blocks: &locals, Sequence: &sequence}
}

func hashKeyed(c hashingCase) (hashingIdentities, error) {
	raw, err := hex.DecodeString(c.KeyHex)
	if err != nil {
		return hashingIdentities{}, fmt.Errorf("key: %w", err)
	}
	key, err := kvhash.NewTrackingKey(raw, c.KeyID)
	if err != nil {
		return hashingIdentities{}, err
	}
	hasher, err := key.Hasher(c.Model, c.RoutingGroup, c.scope())
	if err != nil {
		return hashingIdentities{}, err
	}
	block, chain := hasher.Seeds()
	identities := c.identities(hasher)
	identities.BlockSeed, identities.ChainSeed = &block, &chain
	return identities, nil
}

// hashRequest splits the request's objects to blocks before it hashes.
func hashRequest(c hashingCase) (hashingIdentities, error) {
	hasher, err := c.hasher()
	if err != nil {
		return hashingIdentities{}, err
	}
	c.BlockObjects = nil
	for _, block := range hasher.SplitObjects(hashingObjects(c.Objects), len(c.Tokens)) {
		if len(block) == 0 {
			c.BlockObjects = append(c.BlockObjects, nil)
			continue
		}
		converted := &hashingBlock{}
		for _, object := range block {
			listed := hashingObject{Hash: object.Hash}
			for _, offset := range object.Offsets {
				listed.Offsets = append(listed.Offsets, [2]int{offset.Start, offset.End})
			}
			converted.Objects = append(converted.Objects, listed)
		}
		c.BlockObjects = append(c.BlockObjects, converted)
	}
	identities := c.identities(hasher)
	identities.BlockObjects = &c.BlockObjects
	return identities, nil
}

func hashPads(c hashingCase) (hashingIdentities, error) {
	values := []uint32{}
	for _, hash := range c.ObjectHashes {
		values = append(values, kvhash.PadValue(hash))
	}
	return hashingIdentities{PadValues: &values}, nil
}

func hashUniversal(c hashingCase) (hashingIdentities, error) {
	universal, err := kvhash.NewUniversal(c.scope())
	if err != nil {
		return hashingIdentities{}, err
	}
	var runs []kvhash.PlaceholderRun
	for _, run := range c.Runs {
		runs = append(runs, kvhash.PlaceholderRun(run))
	}
	locals, err := universal.AppendBlocks(nil, c.Tokens, runs)
	if err != nil {
		return hashingIdentities{}, err
	}
	sequence := universal.Hasher().AppendSequence(nil, locals)
	lineage := []string{}
	parent := uint64(0)
	for i, hash := range sequence {
		packed, err := kvhash.NewLineage(i, hash, parent)
		if err != nil {
			return hashingIdentities{}, err
		}
		lineage, parent = append(lineage, packed.String()), hash
	}
	salt, _ := universal.Hasher().Seeds()
	return hashingIdentities{Blocks: &locals, Sequence: &sequence, Lineage: &lineage, Salt: &salt}, nil
}
