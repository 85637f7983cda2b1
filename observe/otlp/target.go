package otlp

import (
	"fmt"
	"net/url"
	"strings"
)

// target is where one kind of telemetry goes.
type target struct {
	URL  string
	HTTP bool // protobuf over HTTP instead of gRPC
}

// targetOf reads OTEL_EXPORTER_OTLP_<signal>_PROTOCOL (else OTEL_EXPORTER_OTLP_PROTOCOL, else grpc) and
// OTEL_EXPORTER_OTLP_<signal>_ENDPOINT, which is taken as it is, else OTEL_EXPORTER_OTLP_ENDPOINT, to which path is added for HTTP, else
// this machine's port 4317 for gRPC and 4318 for HTTP.
func targetOf(get func(string) string, signal, path string) (target, error) {
	first := func(names ...string) (name, value string) {
		for _, name := range names {
			if value := strings.TrimSpace(get(name)); value != "" {
				return name, value
			}
		}
		return "", ""
	}
	var t target
	switch name, protocol := first("OTEL_EXPORTER_OTLP_"+signal+"_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); strings.ToLower(protocol) {
	case "", "grpc":
	case "http/protobuf":
		t.HTTP = true
	default:
		return target{}, fmt.Errorf("%s is %q: grpc or http/protobuf is needed", name, protocol)
	}
	name, own := first("OTEL_EXPORTER_OTLP_" + signal + "_ENDPOINT")
	if t.URL = own; own == "" {
		name, t.URL = first("OTEL_EXPORTER_OTLP_ENDPOINT")
		switch {
		case t.URL == "" && t.HTTP:
			t.URL = "http://localhost:4318"
		case t.URL == "":
			t.URL = "http://localhost:4317"
		}
		if t.HTTP {
			t.URL = strings.TrimRight(t.URL, "/") + path
		}
	}
	if parsed, err := url.Parse(t.URL); err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return target{}, fmt.Errorf("%s is %q: an address such as http://collector:%d is needed", name, t.URL, map[bool]int{false: 4317, true: 4318}[t.HTTP])
	}
	return t, nil
}
