// Package nvext reads what clients say to the serving system beside the protocol: the nvext object of request bodies and the
// x-dynamo headers. Both speak about routing, priority, sessions and disclosure, in every protocol alike.
package nvext

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"signalbox/api/problem"
	"signalbox/inference"
)

const (
	maxMetadataEntries = 64
	maxMetadataBytes   = 65536
	maxSessionIDBytes  = 256
	unsetRank          = math.MaxUint32
)

// DefaultMetadataPrefix begins the headers that travel to the worker.
const DefaultMetadataPrefix = "x-dynamo-meta-"

// PolicyClassKey is the metadata entry that names a router policy class.
const PolicyClassKey = "policy-class"

// RequestID returns the request's id: the client's x-dynamo-request-id where it is a UUID, else a new one.
func RequestID(h http.Header) string {
	if given := h.Get("X-Dynamo-Request-Id"); given != "" {
		if id, err := uuid.Parse(given); err == nil {
			return id.String()
		}
	}
	return uuid.NewString()
}

func firstHeader(h http.Header, names ...string) string {
	for _, name := range names {
		if value := strings.TrimSpace(h.Get(name)); value != "" {
			return value
		}
	}
	return ""
}

func uintHeader(h http.Header, bits int, names ...string) (uint64, bool) {
	value, err := strconv.ParseUint(firstHeader(h, names...), 10, bits)
	return value, err == nil
}

// ApplyRoutingHeaders sets the routing that headers ask for; a header wins over the body. Values that do not parse are ignored.
func ApplyRoutingHeaders(h http.Header, r *inference.Request) {
	routing := &r.Routing
	if id, ok := uintHeader(h, 64, "X-Dynamo-Worker-Instance-Id", "X-Worker-Instance-Id"); ok {
		decode := id
		routing.BackendInstanceID, routing.DecodeWorkerID = &id, &decode
	}
	if id, ok := uintHeader(h, 64, "X-Dynamo-Prefill-Instance-Id", "X-Prefill-Instance-Id"); ok {
		routing.PrefillWorkerID = &id
	}
	if rank, ok := uintHeader(h, 32, "X-Dynamo-Dp-Rank", "X-Dp-Rank", "X-Data-Parallel-Rank"); ok && rank != unsetRank {
		value := uint32(rank)
		routing.DPRank = &value
	}
	if rank, ok := uintHeader(h, 32, "X-Dynamo-Prefill-Dp-Rank", "X-Prefill-Dp-Rank"); ok && rank != unsetRank {
		value := uint32(rank)
		routing.PrefillDPRank = &value
	}
	if priority, err := strconv.ParseInt(firstHeader(h, "X-Dynamo-Request-Priority"), 10, 32); err == nil {
		setPriority(routing, int32(priority))
	}
	if strict, ok := uintHeader(h, 32, "X-Dynamo-Request-Strict-Priority"); ok {
		value := uint32(strict)
		routing.StrictPriority = &value
	}
	if tenant := firstHeader(h, "X-Tenant-Id"); tenant != "" {
		routing.CacheSalt = tenant
	}
}

func setPriority(routing *inference.Routing, priority int32) {
	jump := max(0, float64(priority))
	routing.Priority, routing.PriorityJump = &priority, &jump
}

// HasRoutingHeaders tells whether any routing header is there, for the warning when they are switched off.
func HasRoutingHeaders(h http.Header) bool {
	for _, name := range []string{"X-Dynamo-Worker-Instance-Id", "X-Worker-Instance-Id", "X-Dynamo-Prefill-Instance-Id", "X-Prefill-Instance-Id",
		"X-Dynamo-Dp-Rank", "X-Dp-Rank", "X-Data-Parallel-Rank", "X-Dynamo-Prefill-Dp-Rank", "X-Prefill-Dp-Rank",
		"X-Dynamo-Request-Priority", "X-Dynamo-Request-Strict-Priority"} {
		if h.Get(name) != "" {
			return true
		}
	}
	return false
}

// ApplySessionHeaders sets the session identity: Dynamo's own header, else those of known agents.
func ApplySessionHeaders(h http.Header, r *inference.Request) *problem.Problem {
	session := firstHeader(h, "X-Dynamo-Session-Id")
	parent := firstHeader(h, "X-Dynamo-Parent-Session-Id")
	if session == "" {
		switch {
		case firstHeader(h, "X-Claude-Code-Agent-Id") != "":
			session = firstHeader(h, "X-Claude-Code-Agent-Id")
			parent = firstHeader(h, "X-Claude-Code-Parent-Agent-Id", "X-Claude-Code-Session-Id")
		case firstHeader(h, "X-Claude-Code-Session-Id") != "":
			session = firstHeader(h, "X-Claude-Code-Session-Id")
		case firstHeader(h, "Thread-Id") != "":
			session = firstHeader(h, "Thread-Id")
			parent = firstHeader(h, "X-Codex-Parent-Thread-Id")
		default:
			session = firstHeader(h, "X-Session-Id")
			parent = firstHeader(h, "X-Parent-Session-Id")
		}
	}
	if session == "" {
		return nil
	}
	if len(session) > maxSessionIDBytes {
		return problem.Invalid("x-dynamo-session-id", "session id has %d bytes; at most %d are allowed", len(session), maxSessionIDBytes)
	}
	r.Routing.SessionID = session
	agent := &inference.AgentContext{SessionID: session, ParentSessionID: parent}
	switch strings.ToLower(firstHeader(h, "X-Dynamo-Session-Final")) {
	case "1", "true", "yes", "on":
		final := true
		agent.SessionFinal = &final
	}
	r.AgentContext = agent
	return nil
}

// ApplyMetadataHeaders collects the headers that travel to the worker, their prefix removed.
func ApplyMetadataHeaders(h http.Header, prefix string, r *inference.Request) *problem.Problem {
	var metadata map[string]string
	size := 0
	for name, values := range h {
		if len(values) == 0 || len(name) <= len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) {
			continue
		}
		key := strings.ToLower(name[len(prefix):])
		value := strings.TrimSpace(values[0])
		if key == "authorization" || len(value) >= 7 && strings.EqualFold(value[:7], "bearer ") {
			continue
		}
		if metadata == nil {
			metadata = make(map[string]string)
		}
		metadata[key] = value
		size += len(key) + len(value)
	}
	if len(metadata) > maxMetadataEntries {
		return metadataProblem(fmt.Sprintf("%d entries", maxMetadataEntries))
	}
	if size > maxMetadataBytes {
		return metadataProblem(fmt.Sprintf("%d bytes", maxMetadataBytes))
	}
	r.Metadata = metadata
	r.Routing.PolicyClass = metadata[PolicyClassKey]
	return nil
}

func metadataProblem(limit string) *problem.Problem {
	return &problem.Problem{Status: http.StatusRequestHeaderFieldsTooLarge, Message: "metadata headers exceed the limit of " + limit,
		Class: "InvalidRequest", Reason: "request.invalid"}
}

// ApplyTracing copies the W3C trace context for the worker and the client's own request id.
func ApplyTracing(h http.Header, r *inference.Request) {
	r.TraceParent = h.Get("Traceparent")
	r.TraceState = h.Get("Tracestate")
	r.ClientRequestID = h.Get("X-Request-Id")
}
