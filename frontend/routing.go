package frontend

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"signalbox/discovery"
	"signalbox/kvhash"
	"signalbox/kvindex"
	"signalbox/model"
	"signalbox/model/card"
	"signalbox/observe"
	"signalbox/router"
	"signalbox/router/kv"
	"signalbox/router/mode"
)

// KVMode is the routing mode that looks at caches; the others are those of router/mode.
const KVMode = "kv"

// Routing says how worker sets are routed. A set whose card advertises a configuration of its own uses that one alone.
type Routing struct {
	// Mode is [KVMode] or a mode of router/mode.
	Mode        string
	DeviceRatio int
	// KV configures routers in mode kv.
	KV kv.Config
	// TrackingKey makes the identities of active blocks secret; nil leaves them public.
	TrackingKey *kvhash.TrackingKey
	// Predictor estimates prefill durations where the configuration names a prefill load model.
	Predictor kv.Predictor
	// RequestExpiry is how long a request may make no progress before it can be forgotten.
	RequestExpiry time.Duration
	// Events feeds indexes from the workers' KV events; nil when nobody does.
	Events EventPlane
	Logger *slog.Logger
}

// EventPlane knows where the KV events of workers come from.
type EventPlane interface {
	// Feed applies the events of the endpoint's workers to the index until the feed is closed.
	Feed(target FeedTarget) (EventFeed, error)
}

// FeedTarget is an index that wants to be fed. The feed owns its content: it adds what workers hold and removes who has left.
type FeedTarget struct {
	// Endpoint is the one that the events are about.
	Endpoint discovery.EndpointID
	Index    *kvindex.Index
	// Threads bounds how many messages are applied at the same time.
	Threads int
	Logger  *slog.Logger
}

// EventFeed is a running feed.
type EventFeed interface {
	// Expect announces the ranks of a worker that requests are routed to, Leave that it has gone. A worker that was announced and
	// tells nothing is named in the log and counted by Silent, in ranks.
	Expect(workerID uint64, ranks ...uint32)
	Leave(workerID uint64)
	Silent() int
	// WaitSynced waits until the index has all that workers held when the feed began, or until ctx ends.
	WaitSynced(ctx context.Context) error
	Stats() observe.EventStats
	Close()
}

// Routers returns a factory of routers.
func (r Routing) Routers() RouterFactory {
	return func(set RouterSet) (router.Router, func(), error) {
		chosen := r
		if advertised := set.Set.Card.RouterConfig; advertised != nil {
			if err := chosen.adopt(advertised); err != nil {
				return nil, nil, fmt.Errorf("router_config of the model card: %w", err)
			}
		}
		logger := chosen.Logger.With("model", set.Set.Key.Model, "endpoint", set.Set.Key.Endpoint.String())
		if set.Set.Key.Role == card.PrefillWorker {
			logger.Info("Activating prefill router", "mode", chosen.Mode, "advertised", set.Set.Card.RouterConfig != nil,
				"block_size", set.Set.Card.BlockSize, "kv", chosen.shown())
		}
		if chosen.Mode != KVMode {
			made, err := mode.New(mode.Options{Mode: mode.Mode(chosen.Mode), Pool: set.Pool, DeviceRatio: chosen.DeviceRatio})
			return made, nil, err
		}
		return chosen.startKV(set, logger)
	}
}

// shown is the KV configuration for a log line; "" in other modes.
func (r *Routing) shown() string {
	if r.Mode != KVMode {
		return ""
	}
	text, err := json.Marshal(r.KV)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// advertisedModes are the modes as cards spell them.
var advertisedModes = map[string]string{
	"k_v": KVMode, "round_robin": string(mode.RoundRobin), "random": string(mode.Random), "power_of_two_choices": string(mode.PowerOfTwo),
	"direct": string(mode.Direct), "least_loaded": string(mode.LeastLoaded), "device_aware_weighted": string(mode.DeviceAwareWeighted),
}

// adopt replaces the routing by what a card advertises. Nothing is merged: what the card leaves out is at its default.
func (r *Routing) adopt(advertised json.RawMessage) error {
	var config struct {
		Mode string          `json:"router_mode"`
		KV   json.RawMessage `json:"kv_router_config"`
	}
	if err := json.Unmarshal(advertised, &config); err != nil {
		return err
	}
	chosen, known := advertisedModes[config.Mode]
	if !known {
		names := make([]string, 0, len(advertisedModes))
		for name := range advertisedModes {
			names = append(names, name)
		}
		return fmt.Errorf("router_mode is %q; known are %s", config.Mode, strings.Join(names, ", "))
	}
	r.Mode = chosen
	if chosen != KVMode {
		return nil
	}
	r.KV = kv.DefaultConfig()
	if len(config.KV) > 0 && string(config.KV) != "null" {
		parsed, err := kv.ParseConfig(config.KV)
		if err != nil {
			return fmt.Errorf("kv_router_config: %w", err)
		}
		r.KV = parsed
	}
	return nil
}

// watchMembers is a router that wants to know the cards of its workers.
type watchMembers interface{ Members(set *model.Set) }
