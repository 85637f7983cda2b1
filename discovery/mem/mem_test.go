package mem_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"signalbox/discovery"
	"signalbox/discovery/internal/contract"
	"signalbox/discovery/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	contract.Run(t, func(t *testing.T) contract.Fleet {
		var store mem.Store
		open := func(t *testing.T, onBad func(discovery.BadRecord)) discovery.Backend {
			backend := store.Open(mem.Options{OnBadRecord: onBad})
			t.Cleanup(func() { backend.Close(context.Background()) })
			return backend
		}
		owners := make(map[string]discovery.Backend) // only the process that wrote a key may write it again
		return contract.Fleet{
			Open: open,
			Write: func(t *testing.T, bucket discovery.Bucket, key string, value []byte) {
				writer := open(t, nil)
				if err := writer.Put(t.Context(), bucket, key, value); err == nil {
					owners[key] = writer
				} else if err := owners[key].Replace(t.Context(), bucket, key, value); err != nil {
					t.Fatal(err)
				}
			},
		}
	})
}
