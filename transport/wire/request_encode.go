package wire

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tinylib/msgp/msgp"

	"signalbox/inference"
)

// mapWriter writes a MessagePack map whose number of members becomes known at its end.
type mapWriter struct {
	dst   []byte
	at    int
	count uint16
}

func beginMap(dst []byte) *mapWriter {
	return &mapWriter{at: len(dst), dst: append(dst, 0xde, 0, 0)}
}

// end closes the map. One of up to 15 members gets the short head, as the reference's encoder writes it.
func (m *mapWriter) end() []byte {
	if m.count > 15 {
		binary.BigEndian.PutUint16(m.dst[m.at+1:], m.count)
		return m.dst
	}
	m.dst[m.at] = 0x80 | byte(m.count)
	copy(m.dst[m.at+1:], m.dst[m.at+3:])
	return m.dst[:len(m.dst)-2]
}

func (m *mapWriter) key(name string) {
	m.count++
	m.dst = msgp.AppendString(m.dst, name)
}

func (m *mapWriter) null(name string) {
	m.key(name)
	m.dst = msgp.AppendNil(m.dst)
}

func (m *mapWriter) text(name, value string) {
	m.key(name)
	m.dst = msgp.AppendString(m.dst, value)
}

// texts, ids and the optionals below write nil for what is not there.
func (m *mapWriter) texts(name string, values []string) {
	m.key(name)
	if values == nil {
		m.dst = msgp.AppendNil(m.dst)
		return
	}
	m.dst = appendStrings(m.dst, values)
}

func (m *mapWriter) ids(name string, values []uint32) {
	m.key(name)
	if values == nil {
		m.dst = msgp.AppendNil(m.dst)
		return
	}
	m.dst = appendUint32s(m.dst, values)
}

// orNil writes *value by write, or nil.
func orNil[T any](m *mapWriter, name string, value *T, write func([]byte, T) []byte) {
	m.key(name)
	if value == nil {
		m.dst = msgp.AppendNil(m.dst)
		return
	}
	m.dst = write(m.dst, *value)
}

// present writes the member only when there is a value.
func present[T any](m *mapWriter, name string, value *T, write func([]byte, T) []byte) {
	if value != nil {
		orNil(m, name, value, write)
	}
}

// json writes a raw JSON text as a member, when it is there.
func (m *mapWriter) json(name string, text []byte) error {
	if text == nil {
		return nil
	}
	m.key(name)
	dst, err := AppendMessagePack(m.dst, text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	m.dst = dst
	return nil
}

// AppendRequest appends the body of a request in the codec.
func AppendRequest(dst []byte, r *inference.Request, codec inference.Codec) ([]byte, error) {
	if codec == inference.MessagePack {
		return appendRequest(dst, r)
	}
	packed, err := appendRequest(nil, r)
	if err != nil {
		return dst, err
	}
	return appendRequestJSON(dst, packed, r)
}

// appendRequestJSON transcodes; a UUID is binary in MessagePack and text in JSON.
func appendRequestJSON(dst, packed []byte, r *inference.Request) ([]byte, error) {
	if r.Bootstrap == nil {
		return AppendJSON(dst, packed)
	}
	withText := *r
	withText.Bootstrap = nil
	plain, err := appendRequest(nil, &withText)
	if err != nil {
		return dst, err
	}
	start := len(dst)
	if dst, err = AppendJSON(dst, plain); err != nil {
		return dst[:start], err
	}
	b := r.Bootstrap
	h := b.HandoffID
	dst = append(dst[:len(dst)-1], `,"bootstrap_info":{"bootstrap_host":`...)
	dst = appendString(dst, b.Host)
	return fmt.Appendf(dst, `,"bootstrap_port":%d,"bootstrap_room":%d,"handoff_id":"%x-%x-%x-%x-%x"}}`, b.Port, b.Room, h[:4], h[4:6], h[6:8], h[8:10], h[10:]), nil
}

func appendRequest(dst []byte, r *inference.Request) ([]byte, error) {
	m := beginMap(dst)
	m.text("model", r.Model)
	m.key("token_ids")
	m.dst = appendUint32s(m.dst, r.TokenIDs)
	m.key("stop_conditions")
	m.dst = appendStopConditions(m.dst, &r.Stop)
	m.key("sampling_options")
	var err error
	if m.dst, err = appendSampling(m.dst, &r.Sampling); err != nil {
		return dst, err
	}
	m.key("output_options")
	m.dst = appendOutputOptions(m.dst, &r.Output)
	m.key("eos_token_ids")
	m.dst = appendUint32s(m.dst, r.EOSTokenIDs)
	if r.CardChecksum == "" {
		m.null("mdc_sum")
	} else {
		m.text("mdc_sum", r.CardChecksum)
	}
	m.key("annotations")
	m.dst = appendStrings(m.dst, r.Annotations)
	m.key("routing")
	m.dst = appendRouting(m.dst, &r.Routing)
	if o := r.RouterOverride; o != nil {
		m.key("router_config_override")
		m.dst = appendOverride(m.dst, o)
	} else {
		m.null("router_config_override")
	}
	if err := appendRareRequest(m, r); err != nil {
		return dst, err
	}
	return m.end(), nil
}

// appendMediaNames writes the clients' names of images, nil for those without one; nothing when none has a name.
func appendMediaNames(m *mapWriter, images []inference.Media) {
	if !slices.ContainsFunc(images, func(medium inference.Media) bool { return medium.UUID != "" }) {
		return
	}
	m.key("multi_modal_uuids")
	m.dst = msgp.AppendMapHeader(m.dst, 1)
	m.dst = msgp.AppendString(m.dst, "image_url")
	m.dst = msgp.AppendArrayHeader(m.dst, uint32(len(images)))
	for _, medium := range images {
		if medium.UUID == "" {
			m.dst = msgp.AppendNil(m.dst)
		} else {
			m.dst = msgp.AppendString(m.dst, medium.UUID)
		}
	}
}

// appendRareRequest writes the members that few requests have.
func appendRareRequest(m *mapWriter, r *inference.Request) error {
	if r.PromptEmbeds != "" {
		m.text("prompt_embeds", r.PromptEmbeds)
	}
	if len(r.MultiModal) > 0 {
		m.key("multi_modal_data")
		m.dst = msgp.AppendMapHeader(m.dst, uint32(len(r.MultiModal)))
		for kind, list := range r.MultiModal {
			m.dst = msgp.AppendString(m.dst, kind)
			m.dst = msgp.AppendArrayHeader(m.dst, uint32(len(list)))
			for _, medium := range list {
				name, value := "Url", medium.URL
				if medium.URL == "" {
					name, value = "UuidOnly", medium.UUID
				}
				m.dst = msgp.AppendMapHeader(m.dst, 1)
				m.dst = msgp.AppendString(m.dst, name)
				m.dst = msgp.AppendString(m.dst, value)
			}
		}
		appendMediaNames(m, r.MultiModal["image_url"])
	}
	if p := r.PrefillResult; p != nil {
		m.key("prefill_result")
		inner := beginMap(m.dst)
		inner.key("disaggregated_params")
		dst, err := AppendOpaque(inner.dst, p.DisaggregatedParams, inference.MessagePack)
		if err != nil {
			return fmt.Errorf("disaggregated_params: %w", err)
		}
		inner.dst = dst
		if p.CachedTokens != nil {
			inner.key("prompt_tokens_details")
			details := beginMap(inner.dst)
			details.null("audio_tokens")
			orNil(details, "cached_tokens", p.CachedTokens, msgp.AppendUint32)
			inner.dst = details.end()
		}
		m.dst = inner.end()
	}
	if b := r.Bootstrap; b != nil {
		m.key("bootstrap_info")
		inner := beginMap(m.dst)
		inner.text("bootstrap_host", b.Host)
		inner.key("bootstrap_port")
		inner.dst = msgp.AppendUint16(inner.dst, b.Port)
		inner.key("bootstrap_room")
		inner.dst = msgp.AppendUint64(inner.dst, b.Room)
		inner.key("handoff_id")
		inner.dst = msgp.AppendBytes(inner.dst, b.HandoffID[:])
		m.dst = inner.end()
	}
	for _, member := range [...]struct {
		name string
		text []byte
	}{{"encoder_result", r.EncoderResult}, {"extra_args", r.ExtraArgs}, {"mm_processor_kwargs", r.MMProcessorArgs}, {"media_io_kwargs", r.MediaIOArgs}} {
		if err := m.json(member.name, member.text); err != nil {
			return err
		}
	}
	if r.RequireReasoning {
		m.key("require_reasoning")
		m.dst = msgp.AppendBool(m.dst, true)
	}
	if r.TTFTTarget != nil || r.ITLTarget != nil {
		m.key("router")
		inner := beginMap(m.dst)
		present(inner, "ttft_target", r.TTFTTarget, msgp.AppendFloat64)
		present(inner, "itl_target", r.ITLTarget, msgp.AppendFloat64)
		m.dst = inner.end()
	}
	if a := r.AgentContext; a != nil {
		m.key("agent_context")
		inner := beginMap(m.dst)
		inner.text("session_id", a.SessionID)
		if a.ParentSessionID != "" {
			inner.text("parent_session_id", a.ParentSessionID)
		}
		present(inner, "session_final", a.SessionFinal, msgp.AppendBool)
		m.dst = inner.end()
	}
	present(m, "request_timestamp_ms", r.RequestTimestamp, msgp.AppendFloat64)
	if r.HealthCheck {
		m.key("_HEALTH_CHECK")
		m.dst = msgp.AppendBool(m.dst, true)
	}
	return nil
}

func appendStopConditions(dst []byte, s *inference.StopConditions) []byte {
	m := beginMap(dst)
	orNil(m, "max_tokens", s.MaxTokens, msgp.AppendUint32)
	m.texts("stop", s.Strings)
	m.ids("stop_token_ids", s.TokenIDs)
	m.ids("stop_token_ids_visible", s.VisibleTokenIDs)
	m.ids("stop_token_ids_hidden", s.HiddenTokenIDs)
	orNil(m, "min_tokens", s.MinTokens, msgp.AppendUint32)
	orNil(m, "ignore_eos", s.IgnoreEOS, msgp.AppendBool)
	orNil(m, "max_thinking_tokens", s.MaxThinkingTokens, msgp.AppendUint32)
	return m.end()
}

func appendSampling(dst []byte, s *inference.SamplingOptions) ([]byte, error) {
	m := beginMap(dst)
	orNil(m, "n", s.N, msgp.AppendUint8)
	orNil(m, "best_of", s.BestOf, msgp.AppendUint8)
	orNil(m, "presence_penalty", s.PresencePenalty, msgp.AppendFloat32)
	orNil(m, "frequency_penalty", s.FrequencyPenalty, msgp.AppendFloat32)
	orNil(m, "repetition_penalty", s.RepetitionPenalty, msgp.AppendFloat32)
	orNil(m, "temperature", s.Temperature, msgp.AppendFloat32)
	orNil(m, "top_p", s.TopP, msgp.AppendFloat32)
	orNil(m, "top_k", s.TopK, appendInt[int32])
	orNil(m, "min_p", s.MinP, msgp.AppendFloat32)
	orNil(m, "use_beam_search", s.UseBeamSearch, msgp.AppendBool)
	orNil(m, "length_penalty", s.LengthPenalty, msgp.AppendFloat32)
	orNil(m, "seed", s.Seed, appendInt[int64])
	orNil(m, "include_stop_str_in_output", s.IncludeStopString, msgp.AppendBool)
	g := s.Guided
	if g == nil {
		m.null("guided_decoding")
		return m.end(), nil
	}
	m.key("guided_decoding")
	inner := beginMap(m.dst)
	if err := inner.json("json", g.JSON); err != nil {
		return dst, err
	}
	if err := inner.json("structural_tag", g.StructuralTag); err != nil {
		return dst, err
	}
	for _, member := range [...][2]string{{"regex", g.Regex}, {"grammar", g.Grammar}, {"backend", g.Backend}, {"whitespace_pattern", g.WhitespacePattern}} {
		if member[1] != "" {
			inner.text(member[0], member[1])
		}
	}
	if g.Choice != nil {
		inner.texts("choice", g.Choice)
	}
	m.dst = inner.end()
	return m.end(), nil
}

func appendOutputOptions(dst []byte, o *inference.OutputOptions) []byte {
	m := beginMap(dst)
	orNil(m, "logprobs", o.Logprobs, msgp.AppendUint32)
	orNil(m, "prompt_logprobs", o.PromptLogprobs, msgp.AppendUint32)
	orNil(m, "skip_special_tokens", o.SkipSpecialTokens, msgp.AppendBool)
	orNil(m, "formatted_prompt", o.FormattedPrompt, msgp.AppendBool)
	orNil(m, "return_tokens_as_token_ids", o.ReturnTokensAsTokenIDs, msgp.AppendBool)
	return m.end()
}

func appendOverride(dst []byte, o *inference.RouterOverride) []byte {
	m := beginMap(dst)
	orNil(m, "overlap_score_credit", o.OverlapScoreCredit, msgp.AppendFloat64)
	orNil(m, "prefill_load_scale", o.PrefillLoadScale, msgp.AppendFloat64)
	orNil(m, "router_temperature", o.RouterTemperature, msgp.AppendFloat64)
	orNil(m, "assume_kv_reuse", o.AssumeKVReuse, msgp.AppendBool)
	orNil(m, "track_prefill_tokens", o.TrackPrefillTokens, msgp.AppendBool)
	orNil(m, "shared_cache_multiplier", o.SharedCacheMultiplier, msgp.AppendFloat64)
	return m.end()
}

func appendRouting(dst []byte, r *inference.Routing) []byte {
	m := beginMap(dst)
	present(m, "backend_instance_id", r.BackendInstanceID, msgp.AppendUint64)
	present(m, "prefill_worker_id", r.PrefillWorkerID, msgp.AppendUint64)
	present(m, "decode_worker_id", r.DecodeWorkerID, msgp.AppendUint64)
	present(m, "dp_rank", r.DPRank, msgp.AppendUint32)
	present(m, "prefill_dp_rank", r.PrefillDPRank, msgp.AppendUint32)
	present(m, "expected_output_tokens", r.ExpectedOutputTokens, msgp.AppendUint32)
	if r.LoRAName != "" {
		m.text("lora_name", r.LoRAName)
	}
	if r.CacheSalt != "" {
		m.text("cache_salt", r.CacheSalt)
	}
	present(m, "priority_jump", r.PriorityJump, msgp.AppendFloat64)
	present(m, "priority", r.Priority, appendInt[int32])
	present(m, "strict_priority", r.StrictPriority, msgp.AppendUint32)
	if r.AllowedWorkerIDs != nil {
		m.key("allowed_worker_ids")
		m.dst = msgp.AppendArrayHeader(m.dst, uint32(len(r.AllowedWorkerIDs)))
		for _, id := range r.AllowedWorkerIDs {
			m.dst = msgp.AppendUint64(m.dst, id)
		}
	}
	if r.RequiredTaints != nil || r.PreferredTaints != nil {
		m.key("routing_constraints")
		inner := beginMap(m.dst)
		inner.key("required_taints")
		inner.dst = appendStrings(inner.dst, r.RequiredTaints)
		inner.key("preferred_taints")
		inner.dst = msgp.AppendMapHeader(inner.dst, uint32(len(r.PreferredTaints)))
		for taint, weight := range r.PreferredTaints {
			inner.dst = msgp.AppendString(inner.dst, taint)
			inner.dst = msgp.AppendFloat32(inner.dst, weight)
		}
		m.dst = inner.end()
	}
	return m.end()
}
