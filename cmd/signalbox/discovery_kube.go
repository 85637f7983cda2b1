//go:build !lean

package main

import (
	"context"

	"signalbox/discovery"
	"signalbox/discovery/kube"
)

func init() {
	stores["kubernetes"] = func(ctx context.Context, bad func(discovery.BadRecord)) (discovery.Backend, error) {
		identity, err := kube.IdentityFromEnvironment()
		if err != nil {
			return nil, err
		}
		return kube.Open(ctx, kube.Options{Identity: identity, OnBadRecord: bad})
	}
}
