package frontend

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"signalbox/discovery"
	"signalbox/kvhash"
	"signalbox/kvindex"
	"signalbox/model"
	"signalbox/model/card"
	"signalbox/observe"
	"signalbox/peers"
	"signalbox/remoteindex"
	"signalbox/router"
	"signalbox/router/kv"
	"signalbox/router/mode"
	"signalbox/router/policy"
	"signalbox/router/selection"
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
	// Policies are the policy classes and worker-selection policies of the policy file; nil for none. A set that advertises a
	// configuration of its own has the file that it names there instead.
	Policies *policy.Config
	// Wishes name worker-selection policies, strongest first; they are stronger than any file.
	Wishes []policy.Wish
	// Shadow names a worker-selection policy that decides along in every pool without effect, for comparison; "" for none.
	Shadow string
	// Catalog are the types of worker-selection policies there are; nil for the built-in ones.
	Catalog []selection.Type
	// SessionTTL keeps the requests of a session on one worker while it is idle no longer than that; 0 does not. SoftSessions moves a
	// session when its worker is overloaded.
	SessionTTL   time.Duration
	SoftSessions bool
	// OverlapRefreshAfter is how long a request may wait before its overlap is looked up again; 0 never looks again.
	OverlapRefreshAfter time.Duration
	// RequestExpiry is how long a request may make no progress before it can be forgotten.
	RequestExpiry time.Duration
	// Peers is this process's place on the event plane, where routers of the same workers tell each other of sessions, and of bookings
	// when the configuration says so; nil tells nobody.
	Peers *peers.Plane
	// IndexServer answers other routers' questions from the sets' indexes, when the configuration says so; nil never does. RemoteIndexes
	// makes what asks others instead; nil keeps every index here.
	IndexServer   *remoteindex.Server
	RemoteIndexes func(workers discovery.EndpointID, model string, logger *slog.Logger) (*remoteindex.Client, error)
	// SharedEvents is where the events of the fleet's shared cache are ("tcp://host:port"), instead of where the workers say; "" follows
	// the workers.
	SharedEvents string
	// Events feeds indexes from the workers' KV events; nil when nobody does.
	Events EventPlane
	Logger *slog.Logger

	bases *bases // which adapters share; made with the factory
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
	r.bases = newBases()
	return func(set RouterSet) (router.Router, func(), error) {
		chosen := r
		if advertised := set.Set.Card.RouterConfig; advertised != nil {
			if err := chosen.adopt(advertised); err != nil {
				return nil, nil, fmt.Errorf("router_config of the model card: %w", err)
			}
		}
		logger := chosen.Logger.With("model", set.Set.Key.Model, "endpoint", set.Set.Key.Endpoint.String())
		if chosen.Mode == KVMode && chosen.KV.UseKVEvents && predicted(set.Set) {
			chosen.KV.UseKVEvents, chosen.KV.PredictedTTLSecs, chosen.KV.UseRemoteIndexer = false, nil, false
			logger.Info("these servers publish no KV events: what they have cached is predicted from what they were asked (kv_events of --upstream names where they do)")
		}
		line := "Activating router"
		if set.Set.Key.Role == card.PrefillWorker {
			line = "Activating prefill router"
		}
		logger.Info(line, "role", string(set.Set.Key.Role), "mode", chosen.Mode, "advertised", set.Set.Card.RouterConfig != nil,
			"block_size", set.Set.Card.BlockSize, "kv", chosen.shown())
		made, end, err := chosen.start(set, logger)
		if err != nil || chosen.SessionTTL == 0 {
			return made, end, err
		}
		return chosen.startSessions(set, made, end)
	}
}

// start makes the router of a set.
func (r *Routing) start(set RouterSet, logger *slog.Logger) (router.Router, func(), error) {
	if r.Mode == KVMode && set.Set.Card.LoRA != nil {
		if made := r.startAdapter(set); made != nil {
			return made, nil, nil
		}
		logger.Warn("an adapter has no base model at its workers: it is routed by itself")
	}
	if r.Mode == KVMode {
		return r.startKV(set, logger)
	}
	made, err := mode.New(mode.Options{Mode: mode.Mode(r.Mode), Pool: set.Pool, DeviceRatio: r.DeviceRatio})
	if err != nil {
		return nil, nil, err
	}
	return made, nil, nil
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
	r.Policies, r.TrackingKey = nil, nil
	if file := r.KV.PolicyConfig; file != nil {
		loaded, err := policy.Load(*file)
		if err != nil {
			return err
		}
		r.Policies = loaded
	}
	return r.ApplyFile()
}

// ApplyFile lets the policy file's settings of all routers take effect, which are stronger than any others. A tracking key that the
// configuration names and that is not there yet is read.
func (r *Routing) ApplyFile() error {
	if r.Policies != nil && r.Policies.Router != nil {
		if err := r.KV.Overlay(r.Policies.Router); err != nil {
			return fmt.Errorf("router of the policy file: %w", err)
		}
	}
	if r.TrackingKey != nil {
		return nil
	}
	return r.adoptTrackingKey()
}

// adoptTrackingKey reads the key that an adopted configuration names.
func (r *Routing) adoptTrackingKey() error {
	if r.KV.TrackingHash != KeyedTracking {
		return nil
	}
	if r.KV.TrackingKeyFile == nil || r.KV.TrackingKeyID == nil {
		return fmt.Errorf("router_tracking_hash=%s requires router_tracking_key_file and router_tracking_key_id", KeyedTracking)
	}
	key, err := ReadTrackingKey(*r.KV.TrackingKeyFile, *r.KV.TrackingKeyID)
	if err != nil {
		return fmt.Errorf("router_tracking_key_file: %w", err)
	}
	r.TrackingKey = key
	return nil
}

// KeyedTracking is the algorithm of tracking identities that needs a key.
const KeyedTracking = "keyed-xxh3-v1"

// ReadTrackingKey reads the file of a tracking key: exactly 32 raw bytes. id names the key's epoch.
func ReadTrackingKey(file, id string) (*kvhash.TrackingKey, error) {
	secret, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	key, err := kvhash.NewTrackingKey(secret, id)
	if err != nil {
		return nil, err
	}
	return &key, nil
}

// Check makes every worker-selection policy that a stage would use, to find mistakes before the first worker comes.
func (r *Routing) Check() error {
	for _, stage := range []policy.Stage{policy.Aggregated, policy.Prefill, policy.Decode, policy.Encode} {
		if _, _, err := r.selector(stage); err != nil {
			return err
		}
	}
	_, err := r.shadow()
	return err
}

// shadow makes the policy that decides along; nil for none.
func (r *Routing) shadow() (selection.Policy, error) {
	name := strings.TrimSpace(r.Shadow)
	if name == "" {
		return nil, nil
	}
	made, err := r.named(name)
	if made == nil && err == nil {
		made = &selection.Default{}
	}
	return made, err
}

// selector makes the worker-selection policy of a stage; nil for the built-in one.
func (r *Routing) selector(stage policy.Stage) (made selection.Policy, name string, err error) {
	name = r.selection().Named(stage, r.Wishes...)
	made, err = r.named(name)
	return made, name, err
}

// selection is the file's; nil without.
func (r *Routing) selection() *policy.Selection {
	if r.Policies == nil {
		return nil
	}
	return r.Policies.Selection
}

// named makes the policy of that name; nil for the built-in one.
func (r *Routing) named(name string) (selection.Policy, error) {
	catalog := r.Catalog
	if catalog == nil {
		catalog = selection.Catalog()
	}
	return r.selection().New(name, catalog)
}

// stageOf returns the stage that a set of workers plays.
func stageOf(role card.WorkerType) policy.Stage {
	switch role {
	case card.PrefillWorker:
		return policy.Prefill
	case card.DecodeWorker:
		return policy.Decode
	case card.EncodeWorker:
		return policy.Encode
	}
	return policy.Aggregated
}

// watchMembers is a router that wants to know the cards of its workers.
type watchMembers interface{ Members(set *model.Set) }
