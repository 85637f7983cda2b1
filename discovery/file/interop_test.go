package file_test

import (
	"testing"

	"signalbox/discovery"
	"signalbox/discovery/file"
	"signalbox/discovery/internal/peer"
)

func TestRealWorkerIsSeen(t *testing.T) {
	root := t.TempDir()
	peer.CheckLifeOfWorker(t, func(onBad func(discovery.BadRecord)) discovery.Backend {
		return open(t, file.Options{Root: root, OnBadRecord: onBad})
	}, "file", "DYN_FILE_KV="+root)
}

func TestRealFrontendSeesOurs(t *testing.T) {
	root := t.TempDir()
	peer.CheckFrontendSeesOurs(t, open(t, file.Options{Root: root}), "file", "DYN_FILE_KV="+root)
}
