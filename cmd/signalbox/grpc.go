package main

import (
	"errors"

	"signalbox/frontend"
	"signalbox/settings"
)

// kserveService prepares the KServe gRPC service; nil where the build tag lean left it out.
var kserveService func(s *settings.Frontend, http frontend.HTTPOptions) func(frontend.CompanionHost) (frontend.Companion, error)

// addGRPC puts the gRPC service on the HTTP port when it is asked for, and what is for operators on a port of its own, in plain HTTP.
func addGRPC(options *frontend.Options, s *settings.Frontend) error {
	if !s.KServe.Enabled {
		return nil
	}
	if kserveService == nil {
		return errors.New("--kserve-grpc-server: the gRPC service is not part of this program: it was built with the tag lean; make build makes one that has it")
	}
	options.Companion = kserveService(s, options.HTTP)
	http := &options.HTTP
	http.Port, http.CertPath, http.KeyPath, http.ClientCAPath = s.KServe.MetricsPort, "", "", ""
	return nil
}
