package main

import (
	"fmt"
	"log/slog"

	"signalbox/discovery"
	"signalbox/frontend"
	"signalbox/model/card"
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
	if size, set := s.Discovery.BlockSize.Get(); set { // of all workers
		for i := range servers {
			servers[i].BlockSize = uint32(size)
		}
	}
	client := upstream.NewClient(upstream.ClientOptions{ConnectTimeout: s.Planes.ConnectTimeout, IdleTimeout: s.HTTP.StreamTimeout})
	roster := frontend.NewUpstream(client, discovery.NamespaceFilter{Exact: s.Discovery.Namespace, Prefix: s.Discovery.NamespacePrefix}, logger)
	l.route.Events = roster.Events(l.events)
	options.Backend, options.Transport = roster.Backend(options.Backend), roster.Transport(options.Transport)
	roster.Observe(options.Metrics, servers)
	fleet := upstream.Watch(client, servers, roster, upstream.FleetOptions{Every: s.Upstream.Every, Logger: logger})
	return func() {
		fleet.Close()
		client.Close()
		roster.Close()
	}, nil
}

// upstreamServers reads which servers there are.
func upstreamServers(s *settings.Frontend) ([]upstream.Config, error) {
	hub := card.HubFromEnvironment()
	source := upstream.Source{Words: s.Upstream.Servers, Tokenizer: s.Discovery.ModelPath,
		Locate: func(name string) string { return hub.Directory(name, "tokenizer.json") }}
	servers, err := source.Read()
	if err != nil {
		return nil, fmt.Errorf("--upstream: %w", err)
	}
	if s.Upstream.File == "" {
		return servers, nil
	}
	source.Words, source.File = nil, s.Upstream.File
	listed, err := source.Read()
	if err != nil {
		return nil, fmt.Errorf("--upstream-config: %w", err)
	}
	for _, one := range listed {
		for _, other := range servers {
			if one.Key() == other.Key() {
				return nil, fmt.Errorf("--upstream-config: %s is named by --upstream too", one.Key())
			}
		}
	}
	return append(servers, listed...), nil
}
