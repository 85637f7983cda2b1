//go:build !lean

package main

import (
	"context"

	"signalbox/discovery"
	"signalbox/discovery/etcd"
)

func init() {
	stores["etcd"] = func(ctx context.Context, bad func(discovery.BadRecord)) (discovery.Backend, error) {
		options, err := etcd.OptionsFromEnvironment()
		if err != nil {
			return nil, err
		}
		options.OnBadRecord = bad
		return etcd.Open(ctx, options)
	}
}
