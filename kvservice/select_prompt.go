package kvservice

import (
	"fmt"
	"math/rand/v2"
	"net/http"

	"signalbox/inference"
	"signalbox/kvhash"
	"signalbox/router/kv"
)

// promptBody is a prompt in one of the ways in which it can be told: as tokens, or as the hashes that somebody made of them. Hashes are
// signed on this interface.
type promptBody struct {
	Tokens *[]uint32    `json:"token_ids"`
	Media  []*blockBody `json:"block_mm_infos"`
	// Routing are tokens to route by where those of the prompt say nothing about its media.
	Routing *struct {
		Tokens []uint32     `json:"routing_token_ids"`
		Media  []*blockBody `json:"block_mm_infos"`
	} `json:"mm_routing_info"`
	Blocks   *[]int64 `json:"block_hashes"`
	Sequence *[]int64 `json:"sequence_hashes"`
	Length   *int     `json:"isl_tokens"`
	Adapter  string   `json:"lora_name"`
	Salt     string   `json:"cache_salt"`
	Eagle    *bool    `json:"is_eagle"`
}

// blockBody is the media of one block.
type blockBody struct {
	Objects []struct {
		Hash uint64 `json:"mm_hash"`
	} `json:"mm_objects"`
}

// tokens returns what is to be hashed; false when the prompt was told as hashes.
func (b *promptBody) tokens() (tokens []uint32, media []*blockBody, given bool) {
	if b.Routing != nil && len(b.Routing.Tokens) > 0 {
		return b.Routing.Tokens, b.Routing.Media, true
	}
	if b.Tokens == nil {
		return nil, nil, false
	}
	return *b.Tokens, b.Media, true
}

func badRequest(format string, args ...any) error {
	return &failure{status: http.StatusBadRequest, text: fmt.Sprintf(format, args...)}
}

// hashes checks hashes that were told. withBlocks asks for those of blocks too.
func (b *promptBody) hashes(withBlocks bool) (given kv.Given, err error) {
	switch {
	case withBlocks && b.Blocks == nil:
		return given, badRequest("block_hashes is required without token_ids")
	case b.Sequence == nil:
		return given, badRequest("sequence_hashes is required without token_ids")
	case b.Length == nil:
		return given, badRequest("isl_tokens is required without token_ids")
	case *b.Length < 0 || withBlocks && *b.Length == 0:
		return given, badRequest("isl_tokens must be greater than 0")
	case withBlocks && len(*b.Blocks) != len(*b.Sequence):
		return given, badRequest("block_hashes length %d must match sequence_hashes length %d", len(*b.Blocks), len(*b.Sequence))
	}
	given.Tokens, given.Sequence = *b.Length, unsigned(*b.Sequence)
	given.Tracked = given.Sequence
	if withBlocks {
		given.Locals = unsigned(*b.Blocks)
	}
	return given, nil
}

func unsigned(hashes []int64) []uint64 {
	list := make([]uint64, len(hashes))
	for i, hash := range hashes {
		list[i] = uint64(hash)
	}
	return list
}

// prompt makes of a body what routing needs to know. Without reuse no two requests share a block in the load model.
func (s *Selector) prompt(p *selectPool, b *promptBody, reuse bool) (given kv.Given, err error) {
	tokens, media, told := b.tokens()
	if !told {
		return b.hashes(true)
	}
	scope := kvhash.Scope{BlockSize: p.blockSize, LoRA: b.Adapter, CacheNamespace: b.Salt, Eagle: p.eagle}
	if b.Eagle != nil {
		scope.Eagle = *b.Eagle
	}
	objects := objectsOf(media)
	hasher, err := kvhash.New(scope)
	if err != nil {
		return given, badRequest("%v", err)
	}
	given.Tokens = len(tokens)
	given.Locals = hasher.AppendBlocksWithObjects(nil, tokens, objects)
	given.Sequence = hasher.AppendSequence(nil, given.Locals)
	switch key := s.options.TrackingKey; {
	case !reuse:
		given.Tracked = make([]uint64, len(given.Locals))
		for i := range given.Tracked {
			given.Tracked[i] = rand.Uint64()
		}
	case key == nil:
		given.Tracked = given.Sequence
	default:
		keyed, err := key.Hasher(p.name.model, p.name.group, scope)
		if err != nil {
			return given, badRequest("%v", err)
		}
		given.Tracked = keyed.AppendSequence(nil, keyed.AppendBlocksWithObjects(nil, tokens, objects))
	}
	return given, nil
}

func objectsOf(media []*blockBody) [][]kvhash.Object {
	if len(media) == 0 {
		return nil
	}
	objects := make([][]kvhash.Object, len(media))
	for i, block := range media {
		if block == nil {
			continue
		}
		for _, object := range block.Objects {
			objects[i] = append(objects[i], kvhash.Object{Hash: object.Hash})
		}
	}
	return objects
}

// overrideBody replaces settings for one request. Members that are not known are passed over.
type overrideBody struct {
	OverlapScoreCredit    *float64 `json:"overlap_score_credit"`
	OverlapScoreWeight    *float64 `json:"overlap_score_weight"`
	PrefillLoadScale      *float64 `json:"prefill_load_scale"`
	RouterTemperature     *float64 `json:"router_temperature"`
	AssumeKVReuse         *bool    `json:"assume_kv_reuse"`
	TrackPrefillTokens    *bool    `json:"track_prefill_tokens"`
	SharedCacheMultiplier *float64 `json:"shared_cache_multiplier"`
}

// cannotDeserialize is the failure of a body whose values are not what they should be.
func cannotDeserialize(why string) error {
	return &failure{status: http.StatusUnprocessableEntity, text: "Failed to deserialize the JSON body into the target type: " + why, parse: true}
}

// override returns the settings of one request; nil for the service's own.
func (b *overrideBody) override() (*inference.RouterOverride, error) {
	if b == nil {
		return nil, nil
	}
	override := &inference.RouterOverride{OverlapScoreCredit: b.OverlapScoreCredit, PrefillLoadScale: b.PrefillLoadScale,
		RouterTemperature: b.RouterTemperature, AssumeKVReuse: b.AssumeKVReuse, TrackPrefillTokens: b.TrackPrefillTokens, SharedCacheMultiplier: b.SharedCacheMultiplier}
	if weight := b.OverlapScoreWeight; weight != nil {
		override.PrefillLoadScale = weight
		if *weight == 0 {
			override.OverlapScoreCredit = weight
		}
	}
	if err := kv.ValidateOverride(override); err != nil {
		return nil, cannotDeserialize("router_config_override: " + err.Error())
	}
	return override, nil
}

// reuse tells whether equal prefixes share blocks in the load model.
func (s *Selector) reuse(override *inference.RouterOverride) bool {
	if override != nil && override.AssumeKVReuse != nil {
		return *override.AssumeKVReuse
	}
	return s.options.Config.AssumeKVReuse
}

// tracksPrefill tells whether prompt work counts as load.
func (s *Selector) tracksPrefill(override *inference.RouterOverride) bool {
	if override != nil && override.TrackPrefillTokens != nil {
		return *override.TrackPrefillTokens
	}
	return s.options.Config.TrackPrefillTokens
}
