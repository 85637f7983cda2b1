package discovery

import (
	"context"
	"errors"
	"fmt"
)

var (
	// ErrExists is returned by Put when the key is already taken.
	ErrExists = errors.New("discovery: key exists already")
	// ErrNotOwned is returned by Replace and Delete for a key that this backend did not put.
	ErrNotOwned = errors.New("discovery: key was not put by this process")
	// ErrClosed is returned by every method once Close has been called.
	ErrClosed = errors.New("discovery: backend is closed")
)

// Backend is one process's connection to the store that a fleet shares. All methods may be called from several goroutines.
//
// Keys that the process puts live until it deletes them, closes the backend, or stops keeping them alive (crash, long
// suspension); a process that comes back from suspension or from a lost connection publishes its keys again by itself, under
// the same instance id.
//
// While the store is away the last known records stay: a lost connection never produces Delete events. When it is back the
// difference is delivered.
type Backend interface {
	// InstanceID is this process's identity in the keys and values of the records that it publishes. It never changes
	// during the life of the backend.
	InstanceID() uint64

	// Put creates a key, or fails with ErrExists. The value is kept and must not be changed afterwards.
	Put(ctx context.Context, bucket Bucket, key string, value []byte) error
	// Replace changes the value of a key that this process has put. Readers see one Put event, never a Delete.
	Replace(ctx context.Context, bucket Bucket, key string, value []byte) error
	// Delete removes a key that this process has put. A key that is gone from the store already is no error.
	Delete(ctx context.Context, bucket Bucket, key string) error

	// Watch delivers the bucket's records whose key is prefix or lies below it ("" means all): first those that exist, then
	// one Synced event, then changes. Bad records (see BadRecord) are left out. A store that is read through a mirror (kube) may
	// show what this process has just put a moment later. The channel is closed when ctx ends or the backend closes; the receiver has to drain
	// it until then.
	//
	// Events are coalesced per key: a slow receiver gets the latest state of each key and skips states in between, so that
	// what waits is bounded by the number of keys. A key that is deleted and put again meanwhile may arrive as a
	// single Put, and not at all when its value is the same.
	Watch(ctx context.Context, bucket Bucket, prefix string) (<-chan Event, error)

	// Close removes the keys that this process has put, ends all watches and releases the connection. It returns when all
	// of the backend's goroutines have ended. ctx bounds only the removal of the keys.
	Close(ctx context.Context) error
}

// EventKind tells what an Event reports.
type EventKind uint8

const (
	// Put reports a new key or a changed value.
	Put EventKind = iota + 1
	// Delete reports that a key is gone.
	Delete
	// Synced comes once per watch, after all the records that existed when it began.
	Synced
)

// String returns "put", "delete" or "synced".
func (k EventKind) String() string {
	switch k {
	case Put:
		return "put"
	case Delete:
		return "delete"
	case Synced:
		return "synced"
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Event is one change of a bucket. Its contents are shared between receivers and must not be modified.
type Event struct {
	Kind EventKind
	// Key is relative to the bucket. Empty for Synced.
	Key string
	// Value is the record's JSON as stored. For Delete it is the last value that this watch delivered.
	Value []byte
	// Record is Value decoded: *Instance, *Model, *EventChannel or *EventSource, as the watched bucket says. nil for Synced.
	Record Record
}

// BadRecord describes a stored value that can't be used: not JSON, of another type than its bucket holds, a member missing
// or of the wrong type, or contents that belong under another key. A record that turns bad under an existing key leaves the
// last good one in force.
type BadRecord struct {
	Bucket Bucket
	Key    string
	Err    error
}

// Error says which record is bad and why.
func (b BadRecord) Error() string {
	return fmt.Sprintf("discovery: record %s/%s: %v", b.Bucket, b.Key, b.Err)
}

// Unwrap returns the reason.
func (b BadRecord) Unwrap() error { return b.Err }

// Publish puts a record under the key that its contents call for.
func Publish(ctx context.Context, backend Backend, record Record) error {
	value, err := Marshal(record)
	if err != nil {
		return err
	}
	return backend.Put(ctx, record.Bucket(), record.Key(), value)
}

// Republish replaces a record that was published before.
func Republish(ctx context.Context, backend Backend, record Record) error {
	value, err := Marshal(record)
	if err != nil {
		return err
	}
	return backend.Replace(ctx, record.Bucket(), record.Key(), value)
}

// Withdraw deletes a record that was published before.
func Withdraw(ctx context.Context, backend Backend, record Record) error {
	return backend.Delete(ctx, record.Bucket(), record.Key())
}
