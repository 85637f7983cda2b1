package file_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"signalbox/discovery"
	"signalbox/discovery/file"
	"signalbox/discovery/internal/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T)            { contract.Run(t, newFleet(false)) }
func TestContractPollingOnly(t *testing.T) { contract.Run(t, newFleet(true)) }

func newFleet(pollOnly bool) func(t *testing.T) contract.Fleet {
	return func(t *testing.T) contract.Fleet {
		root := t.TempDir()
		var pollInterval time.Duration
		if pollOnly {
			pollInterval = 10 * time.Millisecond
		}
		return contract.Fleet{
			Open: func(t *testing.T, onBad func(discovery.BadRecord)) discovery.Backend {
				return open(t, file.Options{Root: root, PollOnly: pollOnly, PollInterval: pollInterval, OnBadRecord: onBad})
			},
			Write: func(t *testing.T, bucket discovery.Bucket, key string, value []byte) {
				write(t, root, bucket, key, value)
			},
		}
	}
}

func open(t *testing.T, options file.Options) *file.Backend {
	t.Helper()
	backend, err := file.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { backend.Close(context.Background()) })
	return backend
}

// write publishes as a foreign process would: written aside, then renamed.
func write(t *testing.T, root string, bucket discovery.Bucket, key string, value []byte) {
	t.Helper()
	directory := filepath.Join(root, string(bucket))
	if err := os.MkdirAll(directory, 0o777); err != nil {
		t.Fatal(err)
	}
	temporary := filepath.Join(directory, ".tmp_0123456789abcdef")
	if err := os.WriteFile(temporary, value, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(directory, discovery.EncodeFileName(key))); err != nil {
		t.Fatal(err)
	}
}
