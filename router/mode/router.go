package mode

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"signalbox/inference"
	"signalbox/router"
)

// Options describe a router.
type Options struct {
	Mode Mode
	Pool *router.Pool
	// Random is where chance comes from; nil takes a seed of the process's own.
	Random rand.Source
	// DeviceRatio is the throughput of one accelerator in CPU workers; below 1 means [DefaultDeviceRatio].
	DeviceRatio int
	// Embeddings, when set, lets device-aware routing prefer workers that have a request's media encoded already.
	Embeddings EmbeddingCache
	// Adapters, when set, restricts requests for a LoRA adapter to workers that have it.
	Adapters Adapters
}

// EmbeddingCache knows which workers have media encoded.
type EmbeddingCache interface {
	// Holders appends the indexes among candidates whose worker holds every medium of the request. asked is false when the
	// request has no media.
	Holders(request *inference.Request, workers []router.Worker, candidates, holders []int32) (found []int32, asked bool)
}

// Adapters knows which workers may serve an adapter.
type Adapters interface {
	// Candidates returns the workers for the adapter; restricted is false when every worker will do.
	Candidates(adapter string) (workerIDs []uint64, restricted bool)
}

// Router is a [router.Router] in one of this package's modes.
type Router struct {
	mode       Mode
	pool       *router.Pool
	ratio      uint64
	embeddings EmbeddingCache
	adapters   Adapters
	cursor     atomic.Uint64
	// adapterCursor takes turns among the workers of an adapter, apart from the plain turns.
	adapterCursor atomic.Uint64
	closed        atomic.Bool

	mutex  sync.Mutex // guards random
	random *rand.Rand
}

// New returns a router. Anything but a mode of this package, or a combination that cannot work, is an error.
func New(options Options) (*Router, error) {
	if _, err := Parse(string(options.Mode)); err != nil {
		return nil, err
	}
	if options.Pool == nil {
		return nil, fmt.Errorf("router mode %s needs a pool of workers", options.Mode)
	}
	if options.Adapters != nil && options.Mode != RoundRobin && options.Mode != Random {
		return nil, fmt.Errorf("router mode %s does not know LoRA adapters: use round-robin, random or kv", options.Mode)
	}
	if options.Random == nil {
		options.Random = rand.NewPCG(rand.Uint64(), rand.Uint64())
	}
	if options.DeviceRatio < 1 {
		options.DeviceRatio = DefaultDeviceRatio
	}
	return &Router{
		mode: options.Mode, pool: options.Pool, ratio: uint64(options.DeviceRatio),
		embeddings: options.Embeddings, adapters: options.Adapters, random: rand.New(options.Random),
	}, nil
}

// Close refuses further requests.
func (r *Router) Close() { r.closed.Store(true) }

// Place implements [router.Router]. It never waits.
func (r *Router) Place(ctx context.Context, request *inference.Request, attempt router.Attempt) (*router.Placement, error) {
	if err := ctx.Err(); err != nil {
		return nil, router.Gone(err)
	}
	if r.closed.Load() {
		return nil, router.Closed()
	}
	snapshot := r.pool.Snapshot()
	pin, pinned := attempt.Pin, attempt.Pin != nil
	if !pinned {
		asked, named := router.Pinned(&request.Routing, attempt.Phase)
		switch {
		case named:
			pin, pinned = &asked, true
		case r.mode == Direct:
			return nil, inference.Errorf(inference.InvalidArgument, "worker ID required for %s request in Direct routing mode", attempt.Phase)
		case asked.HasRank:
			return nil, inference.Errorf(inference.InvalidArgument, "dp_rank %d needs a worker id: %s routing chooses workers, not ranks", asked.Rank, r.mode)
		}
	}
	var chosen choice
	var err error
	if pinned {
		chosen, err = r.pinned(snapshot, *pin)
	} else {
		chosen, err = r.choose(snapshot, request, attempt)
	}
	if err != nil {
		return nil, err
	}
	return r.book(snapshot, request, attempt, chosen), nil
}

// choice is where a request goes and how that came about.
type choice struct {
	index   int32
	pin     router.Pin
	counted bool
	reason  string
	among   []int32
	loads   []int // parallel to among, when explaining a counting mode
}

// pinned checks a worker that was named: it must be routable and own the rank. A busy one is refused for now.
func (r *Router) pinned(snapshot *router.Snapshot, pin router.Pin) (choice, error) {
	index := snapshot.Find(pin.WorkerID)
	if index < 0 || snapshot.State(index).Down() {
		return choice{}, inference.Errorf(inference.InvalidArgument, "worker %d is not routable at endpoint %s", pin.WorkerID, r.pool.Endpoint())
	}
	if start, end, known := snapshot.Workers[index].Ranks(); pin.HasRank && known && !(start <= pin.Rank && pin.Rank < end) {
		return choice{}, inference.Errorf(inference.InvalidArgument, "worker %d dp_rank %d is outside [%d, %d)", pin.WorkerID, pin.Rank, start, end)
	}
	if snapshot.State(index).Overloaded() {
		return choice{}, router.SelectedBusy(pin.WorkerID)
	}
	chosen := choice{index: int32(index), pin: pin, reason: "pinned"}
	if r.mode.counts() {
		chosen.counted = true
	}
	return chosen, nil
}

func (r *Router) choose(snapshot *router.Snapshot, request *inference.Request, attempt router.Attempt) (choice, error) {
	adapter := request.Routing.LoRAName
	if adapter != "" && r.adapters != nil {
		if ids, restricted := r.adapters.Candidates(adapter); restricted {
			return r.chooseForAdapter(snapshot, request, attempt, ids)
		}
	}
	free := snapshot.Free()
	if len(free) == 0 {
		if len(snapshot.Routable()) > 0 {
			return choice{}, router.AllBusy()
		}
		return choice{}, router.NoneAvailable(r.pool.Endpoint())
	}
	free, err := eligible(snapshot, request, attempt)
	if err != nil {
		return choice{}, err
	}
	if prefer := attempt.Prefer; prefer != nil {
		for _, index := range free {
			if snapshot.Workers[index].ID == prefer.WorkerID {
				return choice{index: index, pin: router.Pin{WorkerID: prefer.WorkerID}, counted: r.mode.counts(), reason: "preferred"}, nil
			}
		}
	}
	return r.draw(snapshot, request, attempt, free), nil
}

// draw picks among candidates, of which there is at least one, and counts the pick where the mode counts.
func (r *Router) draw(snapshot *router.Snapshot, request *inference.Request, attempt router.Attempt, candidates []int32) choice {
	chosen := choice{among: candidates}
	switch r.mode {
	case RoundRobin:
		chosen.index, chosen.reason = candidates[turn(&r.cursor, len(candidates), request.Routing.QueryOnly)], "next in turn"
	case Random:
		r.mutex.Lock()
		chosen.index, chosen.reason = candidates[r.random.IntN(len(candidates))], "drawn at random"
		r.mutex.Unlock()
	default:
		r.drawByLoad(snapshot, request, attempt, &chosen)
	}
	chosen.pin = router.Pin{WorkerID: snapshot.Workers[chosen.index].ID}
	return chosen
}

func (r *Router) drawByLoad(snapshot *router.Snapshot, request *inference.Request, attempt router.Attempt, chosen *choice) {
	chosen.counted = true
	candidates := chosen.among
	if r.mode == DeviceAwareWeighted && r.embeddings != nil {
		holders, asked := r.embeddings.Holders(request, snapshot.Workers, candidates, nil)
		if asked && len(holders) > 0 {
			// Nothing is left to encode there, so that the request does not count as work.
			chosen.counted, chosen.among = false, holders
		}
	}
	full := !chosen.counted
	count := chosen.counted && !request.Routing.QueryOnly
	r.pool.Occupancy().Choose(snapshot, count, func(loads router.Loads) int {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		switch {
		case full:
			chosen.index, _ = leastLoaded(r.random, chosen.among, loads)
			chosen.reason = "least loaded of those that hold all embeddings"
		case r.mode == PowerOfTwo:
			chosen.index, chosen.reason = powerOfTwo(r.random, candidates, loads), "less loaded of two drawn"
		case r.mode == LeastLoaded:
			var ties int
			chosen.index, ties = leastLoaded(r.random, candidates, loads)
			chosen.reason = "least loaded"
			if ties > 1 {
				chosen.reason = fmt.Sprintf("least loaded, one of %d equals", ties)
			}
		default:
			chosen.index, chosen.reason = deviceAware(r.random, r.ratio, snapshot.Workers, candidates, loads), "device share"
		}
		if attempt.Explain {
			for _, index := range chosen.among {
				chosen.loads = append(chosen.loads, loads.At(index))
			}
		}
		return int(chosen.index)
	})
}

// turn returns whose turn it is among n; a peek does not use it up.
func turn(cursor *atomic.Uint64, n int, peek bool) int {
	if peek {
		return int(cursor.Load() % uint64(n))
	}
	return int((cursor.Add(1) - 1) % uint64(n))
}
