package wire

import (
	"fmt"

	"github.com/google/uuid"

	"signalbox/inference"
)

// DecodeRequest reads the body of a request. Everything but token_ids may be missing; unknown members are skipped.
func DecodeRequest(body []byte, codec inference.Codec) (*inference.Request, error) {
	if codec == inference.JSON {
		packed, err := AppendMessagePack(nil, body)
		if err != nil {
			return nil, fmt.Errorf("request body: %w", err)
		}
		body = packed
	}
	s := scanner{data: body}
	r := &inference.Request{}
	for range s.mapLen() {
		if err := decodeMember(&s, r, string(s.text())); err != nil {
			return nil, fmt.Errorf("request body: %w", err)
		}
		if s.failed != nil {
			return nil, fmt.Errorf("request body: %w", s.failed)
		}
	}
	if s.failed == nil && s.at != len(body) {
		s.fail("bytes after the end of the body")
	}
	if err := s.err(); err != nil {
		return nil, fmt.Errorf("request body: %w", err)
	}
	return r, nil
}

func decodeMember(s *scanner, r *inference.Request, name string) error {
	switch name {
	case "model":
		r.Model = s.str()
	case "token_ids":
		r.TokenIDs = s.uint32s()
	case "stop_conditions":
		decodeStopConditions(s, &r.Stop)
	case "sampling_options":
		return decodeSampling(s, &r.Sampling)
	case "output_options":
		decodeOutputOptions(s, &r.Output)
	case "eos_token_ids":
		r.EOSTokenIDs = s.uint32s()
	case "mdc_sum":
		r.CardChecksum = s.str()
	case "annotations":
		r.Annotations = s.strings()
	case "routing":
		decodeRouting(s, &r.Routing)
	case "router_config_override":
		if !s.null() {
			r.RouterOverride = &inference.RouterOverride{}
			decodeOverride(s, r.RouterOverride)
		}
	case "multi_modal_data":
		decodeMedia(s, r)
	case "multi_modal_uuids":
		decodeMediaNames(s, r)
	case "router":
		decodeTargets(s, r)
	case "prompt_embeds":
		r.PromptEmbeds = s.str()
	case "prefill_result":
		if !s.null() {
			r.PrefillResult = &inference.PrefillResult{}
			decodePrefillResult(s, r.PrefillResult)
		}
	case "bootstrap_info":
		if !s.null() {
			r.Bootstrap = &inference.Bootstrap{}
			return decodeBootstrap(s, r.Bootstrap)
		}
	case "require_reasoning":
		r.RequireReasoning = s.flag()
	case "request_timestamp_ms":
		r.RequestTimestamp = s.optionalFloat64()
	case "_HEALTH_CHECK":
		r.HealthCheck = s.flag()
	case "extra_args":
		return decodeJSON(s, &r.ExtraArgs)
	case "encoder_result":
		return decodeJSON(s, &r.EncoderResult)
	case "mm_processor_kwargs":
		return decodeJSON(s, &r.MMProcessorArgs)
	case "media_io_kwargs":
		return decodeJSON(s, &r.MediaIOArgs)
	case "agent_context":
		if !s.null() {
			r.AgentContext = &inference.AgentContext{}
			decodeAgent(s, r.AgentContext)
		}
	default:
		s.skip()
	}
	return nil
}

// decodeJSON reads a value of any shape as JSON text.
func decodeJSON(s *scanner, text *[]byte) error {
	raw := s.raw()
	if raw == nil {
		return nil
	}
	converted, err := AppendJSON(nil, raw)
	*text = converted
	return err
}

// decodeMedia reads the media that are named by a URL or a UUID. Those that a frontend decoded itself lie in shared memory of
// that machine, which nothing here reads; they are skipped.
func decodeMedia(s *scanner, r *inference.Request) {
	if s.null() {
		return
	}
	r.MultiModal = make(map[string][]inference.Media)
	for range s.mapLen() {
		kind := s.str()
		list := []inference.Media{}
		for range s.bounded(maxStrings) {
			var medium inference.Media
			for range s.mapLen() {
				switch string(s.text()) {
				case "Url":
					medium.URL = s.str()
				case "UuidOnly":
					medium.UUID = s.str()
				default:
					s.skip()
				}
			}
			list = append(list, medium)
		}
		r.MultiModal[kind] = list
	}
}

// decodeMediaNames adds clients' names to media that were read before: they come after them.
func decodeMediaNames(s *scanner, r *inference.Request) {
	if s.null() {
		return
	}
	for range s.mapLen() {
		kind := s.str()
		for i := range s.bounded(maxStrings) {
			name := ""
			if !s.null() {
				name = s.str()
			}
			if list := r.MultiModal[kind]; i < len(list) {
				list[i].UUID = name
			}
		}
	}
}

func decodeTargets(s *scanner, r *inference.Request) {
	for range s.mapLen() {
		switch string(s.text()) {
		case "ttft_target":
			r.TTFTTarget = s.optionalFloat64()
		case "itl_target":
			r.ITLTarget = s.optionalFloat64()
		default:
			s.skip()
		}
	}
}

func decodeAgent(s *scanner, a *inference.AgentContext) {
	for range s.mapLen() {
		switch string(s.text()) {
		case "session_id":
			a.SessionID = s.str()
		case "parent_session_id":
			a.ParentSessionID = s.str()
		case "session_final":
			a.SessionFinal = s.optionalBool()
		default:
			s.skip()
		}
	}
}

func decodeStopConditions(s *scanner, c *inference.StopConditions) {
	for range s.mapLen() {
		switch string(s.text()) {
		case "max_tokens":
			c.MaxTokens = s.optionalUint32()
		case "stop":
			c.Strings = s.strings()
		case "stop_token_ids":
			c.TokenIDs = s.uint32s()
		case "stop_token_ids_visible":
			c.VisibleTokenIDs = s.uint32s()
		case "stop_token_ids_hidden":
			c.HiddenTokenIDs = s.uint32s()
		case "min_tokens":
			c.MinTokens = s.optionalUint32()
		case "ignore_eos":
			c.IgnoreEOS = s.optionalBool()
		case "max_thinking_tokens":
			c.MaxThinkingTokens = s.optionalUint32()
		default:
			s.skip()
		}
	}
}

func decodeSampling(s *scanner, o *inference.SamplingOptions) error {
	for range s.mapLen() {
		switch string(s.text()) {
		case "n":
			o.N = s.optionalUint8()
		case "best_of":
			o.BestOf = s.optionalUint8()
		case "presence_penalty":
			o.PresencePenalty = s.optionalFloat32()
		case "frequency_penalty":
			o.FrequencyPenalty = s.optionalFloat32()
		case "repetition_penalty":
			o.RepetitionPenalty = s.optionalFloat32()
		case "temperature":
			o.Temperature = s.optionalFloat32()
		case "top_p":
			o.TopP = s.optionalFloat32()
		case "top_k":
			o.TopK = s.optionalInt32()
		case "min_p":
			o.MinP = s.optionalFloat32()
		case "use_beam_search":
			o.UseBeamSearch = s.optionalBool()
		case "length_penalty":
			o.LengthPenalty = s.optionalFloat32()
		case "seed":
			o.Seed = s.optionalInt64()
		case "include_stop_str_in_output":
			o.IncludeStopString = s.optionalBool()
		case "guided_decoding":
			if s.null() {
				continue
			}
			o.Guided = &inference.GuidedDecoding{}
			if err := decodeGuided(s, o.Guided); err != nil {
				return err
			}
		default:
			s.skip()
		}
	}
	return nil
}

func decodeGuided(s *scanner, g *inference.GuidedDecoding) error {
	for range s.mapLen() {
		var err error
		switch string(s.text()) {
		case "json":
			err = decodeJSON(s, &g.JSON)
		case "structural_tag":
			err = decodeJSON(s, &g.StructuralTag)
		case "regex":
			g.Regex = s.str()
		case "choice":
			g.Choice = s.strings()
		case "grammar":
			g.Grammar = s.str()
		case "backend":
			g.Backend = s.str()
		case "whitespace_pattern":
			g.WhitespacePattern = s.str()
		default:
			s.skip()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func decodeOutputOptions(s *scanner, o *inference.OutputOptions) {
	for range s.mapLen() {
		switch string(s.text()) {
		case "logprobs":
			o.Logprobs = s.optionalUint32()
		case "prompt_logprobs":
			o.PromptLogprobs = s.optionalUint32()
		case "skip_special_tokens":
			o.SkipSpecialTokens = s.optionalBool()
		case "formatted_prompt":
			o.FormattedPrompt = s.optionalBool()
		case "return_tokens_as_token_ids":
			o.ReturnTokensAsTokenIDs = s.optionalBool()
		default:
			s.skip()
		}
	}
}

func decodeOverride(s *scanner, o *inference.RouterOverride) {
	for range s.mapLen() {
		switch string(s.text()) {
		case "overlap_score_credit":
			o.OverlapScoreCredit = s.optionalFloat64()
		case "prefill_load_scale":
			o.PrefillLoadScale = s.optionalFloat64()
		case "router_temperature":
			o.RouterTemperature = s.optionalFloat64()
		case "assume_kv_reuse":
			o.AssumeKVReuse = s.optionalBool()
		case "track_prefill_tokens":
			o.TrackPrefillTokens = s.optionalBool()
		case "shared_cache_multiplier":
			o.SharedCacheMultiplier = s.optionalFloat64()
		default:
			s.skip()
		}
	}
}

func decodeRouting(s *scanner, r *inference.Routing) {
	for range s.mapLen() {
		switch string(s.text()) {
		case "backend_instance_id":
			r.BackendInstanceID = s.optionalUint64()
		case "prefill_worker_id":
			r.PrefillWorkerID = s.optionalUint64()
		case "decode_worker_id":
			r.DecodeWorkerID = s.optionalUint64()
		case "dp_rank":
			r.DPRank = s.optionalUint32()
		case "prefill_dp_rank":
			r.PrefillDPRank = s.optionalUint32()
		case "expected_output_tokens":
			r.ExpectedOutputTokens = s.optionalUint32()
		case "lora_name":
			r.LoRAName = s.str()
		case "cache_salt":
			r.CacheSalt = s.str()
		case "priority_jump":
			r.PriorityJump = s.optionalFloat64()
		case "priority":
			r.Priority = s.optionalInt32()
		case "strict_priority":
			r.StrictPriority = s.optionalUint32()
		case "allowed_worker_ids":
			r.AllowedWorkerIDs = s.uint64s()
		case "routing_constraints":
			decodeConstraints(s, r)
		default:
			s.skip()
		}
	}
}

func decodeConstraints(s *scanner, r *inference.Routing) {
	for range s.mapLen() {
		switch string(s.text()) {
		case "required_taints":
			r.RequiredTaints = s.strings()
		case "preferred_taints":
			if s.null() {
				continue
			}
			r.PreferredTaints = make(map[string]float32)
			for range s.mapLen() {
				taint := s.str()
				r.PreferredTaints[taint] = float32(s.float())
			}
		default:
			s.skip()
		}
	}
}

func decodePrefillResult(s *scanner, p *inference.PrefillResult) {
	for range s.mapLen() {
		switch string(s.text()) {
		case "disaggregated_params":
			p.DisaggregatedParams = inference.Opaque{Codec: inference.MessagePack, Bytes: append([]byte(nil), s.raw()...)}
		case "prompt_tokens_details":
			for range s.mapLen() {
				if string(s.text()) == "cached_tokens" {
					p.CachedTokens = s.optionalUint32()
				} else {
					s.skip()
				}
			}
		default:
			s.skip()
		}
	}
}

func decodeBootstrap(s *scanner, b *inference.Bootstrap) error {
	for range s.mapLen() {
		switch string(s.text()) {
		case "bootstrap_host":
			b.Host = s.str()
		case "bootstrap_port":
			b.Port = uint16(s.uint(1<<16 - 1))
		case "bootstrap_room":
			b.Room = s.uint(1<<64 - 1)
		case "handoff_id":
			if s.null() {
				continue
			}
			id := s.text()
			if len(id) == len(b.HandoffID) {
				copy(b.HandoffID[:], id)
				continue
			}
			if len(id) > 0 && !parseUUID(string(id), &b.HandoffID) {
				return fmt.Errorf("handoff_id %.60q is no UUID", id)
			}
		default:
			s.skip()
		}
	}
	return nil
}

func parseUUID(text string, id *[16]byte) bool {
	parsed, err := uuid.Parse(text)
	*id = parsed
	return err == nil
}
