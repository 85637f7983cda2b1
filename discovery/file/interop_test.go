package file_test

import (
	"testing"

	"signalbox/discovery"
	"signalbox/discovery/file"
	"signalbox/discovery/internal/peer"
)

func TestRealWorkerIsSeen(t *testing.T) {
	root := t.TempDir()
	store := peer.Store{Backend: "file", Environment: []string{"DYN_FILE_KV=" + root}}
	peer.CheckLifeOfWorker(t, store, func(onBad func(discovery.BadRecord)) discovery.Backend {
		return open(t, file.Options{Root: root, OnBadRecord: onBad})
	})
}

func TestRealFrontendSeesOurs(t *testing.T) {
	root := t.TempDir()
	store := peer.Store{Backend: "file", Environment: []string{"DYN_FILE_KV=" + root}}
	peer.CheckFrontendSeesOurs(t, store, open(t, file.Options{Root: root}))
}
