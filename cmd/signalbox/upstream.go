package main

import (
	"fmt"
	"log/slog"

	"signalbox/discovery"
	"signalbox/frontend"
	"signalbox/settings"
	"signalbox/upstream"
)

// joinUpstream lets the plain servers that the settings name be workers: it puts them into the links and into the frontend's options. end
// lets them leave, after the frontend has ended.
func joinUpstream(s *settings.Frontend, l *links, options *frontend.Options, logger *slog.Logger) (end func(), err error) {
	servers, err := upstreamServers(s)
	if err != nil || len(servers) == 0 {
		return func() {}, err
	}
	client := upstream.NewClient(upstream.ClientOptions{ConnectTimeout: s.Planes.ConnectTimeout, IdleTimeout: s.HTTP.StreamTimeout})
	roster := frontend.NewUpstream(client, discovery.NamespaceFilter{Exact: s.Discovery.Namespace, Prefix: s.Discovery.NamespacePrefix}, logger)
	l.route.Events = roster.Events(l.events)
	options.Backend, options.Transport = roster.Backend(options.Backend), roster.Transport(options.Transport)
	fleet := upstream.Watch(client, servers, roster, upstream.FleetOptions{Every: s.Upstream.Every, Logger: logger})
	return func() {
		fleet.Close()
		client.Close()
		roster.Close()
	}, nil
}

// upstreamServers reads which servers there are.
func upstreamServers(s *settings.Frontend) ([]upstream.Config, error) {
	servers, err := upstream.Read(s.Upstream.Servers, "", s.Discovery.ModelPath)
	if err != nil {
		return nil, fmt.Errorf("--upstream: %w", err)
	}
	if s.Upstream.File == "" {
		return servers, nil
	}
	listed, err := upstream.Read(nil, s.Upstream.File, s.Discovery.ModelPath)
	if err != nil {
		return nil, fmt.Errorf("--upstream-config: %w", err)
	}
	for _, one := range listed {
		for _, other := range servers {
			if one.URL == other.URL {
				return nil, fmt.Errorf("--upstream-config: %s is named by --upstream too", one.URL)
			}
		}
	}
	return append(servers, listed...), nil
}
