package policy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// routerSettings are the members of the file's "router" mapping, with the reader of each one's type. The names are those of a KV
// router's configuration.
var routerSettings = map[string]func(node) any{
	"host_cache_hit_weight": asNumber, "disk_cache_hit_weight": asNumber, "router_ttl_secs": asNumber, "router_predicted_ttl_secs": asNumber,
	"use_kv_events": asBool, "router_replica_sync": asBool, "router_track_active_blocks": asBool, "router_track_output_blocks": asBool,
	"router_assume_kv_reuse": asBool, "router_track_prefill_tokens": asBool, "use_remote_indexer": asBool, "serve_indexer": asBool,
	"enable_session_prefix_index": asBool,
	"router_tracking_hash":        asText, "router_tracking_key_file": asText, "router_tracking_key_id": asText, "router_prefill_load_model": asText,
	"router_approximate_cache_policy": asText, "shared_cache_type": asText,
	"router_event_threads": asCount,
}

func asNumber(n node) any { return n.number() }
func asText(n node) any   { return n.text() }
func asCount(n node) any  { return n.count() }

func asBool(n node) any {
	if value, is := n.value.(*ast.BoolNode); is {
		return value.Value
	}
	n.wrongType("a boolean")
	return false
}

// readRouter reads settings that routers share, as the JSON form of a KV router's configuration.
func readRouter(n node) []byte {
	read := make(map[string]any)
	for _, m := range n.members(nil) {
		as, known := routerSettings[m.key]
		if !known {
			m.fail("unknown router setting: %s, expected one of %s", m.key, strings.Join(slices.Sorted(maps.Keys(routerSettings)), ", "))
			return nil
		}
		if m.present() {
			read[m.key] = as(m.node)
		}
	}
	if n.in.problem != nil {
		return nil
	}
	text, err := json.Marshal(read)
	if err != nil {
		n.fail("%v", err)
	}
	return text
}
