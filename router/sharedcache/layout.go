package sharedcache

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// RuntimeKey is the entry of a model card's runtime data in which a worker describes its layout.
const RuntimeKey = "sglang_hicache_mooncake"

// Backend is the only storage that is followed.
const Backend = "mooncake"

// maxParts bounds the pieces of a page: more than any model is split into, and little enough to note which of them are there.
const maxParts = 1024

// Layout is how the workers of a fleet store pages. All of them have to agree.
type Layout struct {
	Backend string `json:"backend"`
	// PageSize is in tokens.
	PageSize uint32 `json:"page_size"`
	// TensorParallel and PipelineParallel are the ranks that a model is split over.
	TensorParallel   uint32 `json:"tp_size"`
	PipelineParallel uint32 `json:"pp_size"`
	// MLA marks models with latent attention: all ranks share one piece, without values of its own.
	MLA bool `json:"is_mla_model"`
	// Eagle marks pages that are named by pairs of adjacent tokens.
	Eagle bool `json:"is_eagle"`
	// TensorParallelLCM counts the pieces instead of TensorParallel where heads are split, so that fleets of different sizes share them;
	// 0 for none.
	TensorParallelLCM uint32 `json:"tp_lcm_size"`
	SplitHeads        bool   `json:"should_split_heads"`
	// Tag goes before the name of every object; "" for none.
	Tag string `json:"extra_backend_tag"`
}

// ParseLayout reads what a worker tells, and where it says that the master publishes ("tcp://host:port", "" where it does not).
func ParseLayout(text []byte) (layout Layout, endpoint string, err error) {
	var required struct {
		Backend    *string `json:"backend"`
		PageSize   *uint32 `json:"page_size"`
		Tensor     *uint32 `json:"tp_size"`
		Pipeline   *uint32 `json:"pp_size"`
		MLA        *bool   `json:"is_mla_model"`
		Eagle      *bool   `json:"is_eagle"`
		SplitHeads *bool   `json:"should_split_heads"`
		Endpoint   *string `json:"kv_events_endpoint"`
	}
	if err := json.Unmarshal(text, &required); err != nil {
		return Layout{}, "", fmt.Errorf("%s: %w", RuntimeKey, err)
	}
	for _, member := range []struct {
		name  string
		there bool
	}{
		{"backend", required.Backend != nil}, {"page_size", required.PageSize != nil}, {"tp_size", required.Tensor != nil},
		{"pp_size", required.Pipeline != nil}, {"is_mla_model", required.MLA != nil}, {"is_eagle", required.Eagle != nil},
		{"should_split_heads", required.SplitHeads != nil},
	} {
		if !member.there {
			return Layout{}, "", fmt.Errorf("%s: %s is missing", RuntimeKey, member.name)
		}
	}
	if err := json.Unmarshal(text, &layout); err != nil {
		return Layout{}, "", fmt.Errorf("%s: %w", RuntimeKey, err)
	}
	if parts := layout.Parts(); parts > maxParts {
		return Layout{}, "", fmt.Errorf("%s: a page of %d pieces; at most %d are followed", RuntimeKey, parts, maxParts)
	}
	if required.Endpoint != nil {
		endpoint = *required.Endpoint
	}
	return layout, endpoint, nil
}

// check tells why pages of the layout cannot stand for a router's blocks, which have blockSize tokens.
func (l *Layout) check(blockSize int) error {
	switch {
	case l.Backend != Backend:
		return fmt.Errorf("the storage backend is %q; only %q is followed", l.Backend, Backend)
	case l.PageSize == 0:
		return errors.New("a page has no tokens")
	case int64(l.PageSize) != int64(blockSize):
		return fmt.Errorf("a page has %d tokens, a block of the router %d: they have to be equal", l.PageSize, blockSize)
	}
	return nil
}

// ranks returns the tensor ranks and pipeline stages that have pieces of their own.
func (l *Layout) ranks() (tensor, pipeline uint64) {
	pipeline = max(1, uint64(l.PipelineParallel))
	switch tensor = max(1, uint64(l.TensorParallel)); {
	case l.MLA:
		return 1, pipeline
	case l.SplitHeads:
		return max(tensor, uint64(l.TensorParallelLCM)), pipeline
	}
	return tensor, pipeline
}

// Parts returns how many objects a page consists of.
func (l *Layout) Parts() uint64 {
	tensor, pipeline := l.ranks()
	if l.MLA {
		return pipeline
	}
	return 2 * tensor * pipeline
}

// Page names a page: the SHA-256 of its tokens and of the page before it.
type Page [32]byte

// AppendKeys appends the names of a page's objects, in order of their parts.
func (l *Layout) AppendKeys(list []string, page Page) []string {
	name := hex.EncodeToString(page[:])
	if l.Tag != "" {
		name = l.Tag + "_" + name
	}
	tensor, pipeline := l.ranks()
	for stage := range pipeline {
		for rank := range tensor {
			var place string
			switch {
			case l.MLA && pipeline > 1:
				place = strconv.FormatUint(stage, 10)
			case l.MLA:
			case pipeline > 1:
				place = strconv.FormatUint(rank, 10) + "_" + strconv.FormatUint(stage, 10)
			default:
				place = strconv.FormatUint(rank, 10)
			}
			list = append(list, name+"_"+place+"_k")
			if !l.MLA {
				list = append(list, name+"_"+place+"_v")
			}
		}
	}
	return list
}

// Part returns what the object of a key is: the page, and which of its parts. ok is false for a key of another layout.
func (l *Layout) Part(key string) (page Page, part int, ok bool) {
	if l.Tag != "" {
		if key, ok = strings.CutPrefix(key, l.Tag+"_"); !ok {
			return page, 0, false
		}
	}
	const digits = 2 * len(page)
	if len(key) < digits+1 || key[digits] != '_' || !lowerHex(key[:digits]) {
		return page, 0, false
	}
	if _, err := hex.Decode(page[:], []byte(key[:digits])); err != nil {
		return page, 0, false
	}
	place, isKeys := strings.CutSuffix(key[digits+1:], "_k")
	isValues := false
	if !isKeys {
		place, isValues = strings.CutSuffix(place, "_v")
	}
	if !isKeys && !isValues || isValues && l.MLA {
		return page, 0, false
	}
	tensor, pipeline := l.ranks()
	rank, stage := uint64(0), uint64(0)
	switch {
	case l.MLA && pipeline == 1:
		ok = place == ""
	case l.MLA:
		stage, ok = ordinal(place, pipeline)
	case pipeline == 1:
		rank, ok = ordinal(place, tensor)
	default:
		first, second, both := strings.Cut(place, "_")
		var known bool
		rank, ok = ordinal(first, tensor)
		stage, known = ordinal(second, pipeline)
		ok = ok && known && both
	}
	part = int(stage*tensor + rank)
	if !l.MLA {
		part *= 2
	}
	if isValues {
		part++
	}
	return page, part, ok
}

// ordinal reads a number below limit, in the one form that it is written in.
func ordinal(text string, limit uint64) (uint64, bool) {
	value, err := strconv.ParseUint(text, 10, 32)
	return value, err == nil && value < limit && (text[0] != '0' || len(text) == 1)
}

func lowerHex(text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
