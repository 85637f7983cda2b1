//go:build !lean

package main

import (
	"crypto/tls"

	"signalbox/api/frontdoor"
	"signalbox/api/kserve"
	"signalbox/frontend"
	"signalbox/settings"
)

func init() {
	kserveService = func(s *settings.Frontend, http frontend.HTTPOptions) func(frontend.CompanionHost) (frontend.Companion, error) {
		return func(host frontend.CompanionHost) (frontend.Companion, error) {
			var encryption *tls.Config
			if http.CertPath != "" {
				var err error
				files := frontdoor.Config{CertPath: http.CertPath, KeyPath: http.KeyPath, ClientCAPath: http.ClientCAPath}
				if encryption, err = frontdoor.TLSConfig(files); err != nil {
					return nil, err
				}
			}
			return kserve.Start(host.Models, kserve.Options{Host: http.Host, Port: http.Port, TLS: encryption, Limit: s.HTTP.BodyLimitMB << 20,
				Stall: s.HTTP.ClientStallLimit, ConnectionWindow: int32(s.KServe.ConnectionWindow), StreamWindow: int32(s.KServe.StreamWindow),
				MetadataPrefix: s.HTTP.MetadataHeader, DisableExtensions: s.Protocol.DisableExtensions, OverloadStatus: s.HTTP.OverloadStatus,
				Completions: host.API, Observer: host.Observer, Draining: host.Draining, Track: host.Track})
		}
	}
}
