package kv

import (
	"math"
	"strconv"
	"time"

	"signalbox/inference"
	"signalbox/kvindex"
	"signalbox/router"
	"signalbox/router/cost"
	"signalbox/router/load"
	"signalbox/router/selection"
)

// choose picks a rank for the prompt and books the request there, in one step: of two requests at the same time, the second
// sees the first one's load. A request that has to wait comes back as a waiter instead.
func (r *Router) choose(lease *Lease, request *inference.Request, attempt *router.Attempt, how terms, p *prompt, steps *Steps) (*waiter, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	snapshot := r.options.Pool.Snapshot()
	r.alignTo(snapshot)
	now := r.clock.Now()
	if r.line != nil && !(request.Routing.QueryOnly && attempt.AtOnce) {
		w, err := r.enqueue(snapshot, lease, request, attempt, how, p, steps, now)
		if w != nil || err != nil {
			return w, err
		}
	}
	if err := r.place(snapshot, lease, request, attempt, how, p, steps, now); err != nil {
		return nil, err
	}
	if r.line == nil && !request.Routing.QueryOnly {
		r.received[r.class(request, p)]++
	}
	return nil, nil
}

// class returns the policy class of a request that has just been placed.
func (r *Router) class(request *inference.Request, p *prompt) int {
	if len(r.received) == 1 {
		return 0
	}
	choice := r.options.Profile.Select(request.Routing.PolicyClass)
	if !choice.NeedsCache() {
		return choice.Class(0)
	}
	return choice.Class(uint64(p.tokens - min(r.bestCached(), p.tokens)))
}

// place is choose for a request that goes now. The caller holds the mutex and has aligned the fleet to the snapshot.
func (r *Router) place(snapshot *router.Snapshot, lease *Lease, request *inference.Request, attempt *router.Attempt, how terms, p *prompt, steps *Steps, now time.Duration) error {
	if err := r.tabulate(snapshot, request, attempt, how, p, now, false); err != nil {
		return err
	}
	row, reason, err := r.pick(attempt, how)
	if err != nil {
		return err
	}
	if r.shadow != nil && reason == "" && !request.Routing.QueryOnly {
		r.shadow.consult(r, row)
	}
	chosen := &r.table.Rows[row]
	effective := r.weights.Effective(chosen.Overlap)
	cached := cost.CachedTokens(effective, r.options.BlockSize)
	if p.report != nil {
		p.report.describe(chosen, cached, p, r.options.BlockSize)
	}
	if err := r.book(lease, request, attempt, how, p, row, min(cached, p.tokens), now); err != nil {
		return err
	}
	lease.InputTokens, lease.InputBlocks = p.tokens, cost.Blocks(p.tokens, r.options.BlockSize)
	lease.CachedTokens, lease.OverlapBlocks = cached, effective
	lease.QueryOnly = request.Routing.QueryOnly
	if r.line != nil {
		lease.QueueDepth = r.line.queue.Len()
	}
	if attempt.Explain {
		lease.Decision = r.explain(snapshot, how, p, row, reason)
		lease.Decision.SetPhase(attempt.Phase)
	}
	if steps != nil {
		r.noteCached(steps, p, chosen)
	}
	if steps != nil && steps.Shared.Asked {
		steps.Shared.Beyond = cost.SharedBeyond(p.shared, uint32(math.Round(effective)))
	}
	for i := 0; steps != nil && r.options.PrefillPool && i < len(r.table.Rows); i++ {
		steps.LostBlocks = max(steps.LostBlocks, r.weights.Effective(r.table.Rows[i].Overlap)-effective)
	}
	return nil
}

// noteCached says how much of the prompt the winner and the best rank have cached, whatever the credit for it.
func (r *Router) noteCached(steps *Steps, p *prompt, chosen *selection.Row) {
	cached := func(row *selection.Row) int {
		return min(p.tokens, int(row.Overlap.Device+row.Overlap.Host+row.Overlap.Disk)*r.options.BlockSize)
	}
	steps.SelectedCached = cached(chosen)
	steps.BestCached = steps.SelectedCached
	for _, found := range [...]*kvindex.Matches{&p.held, &p.expected} {
		for i := range found.Ranks {
			if row := r.row(inference.Rank(found.Ranks[i].Rank)); row != nil {
				steps.BestCached = max(steps.BestCached, cached(row))
			}
		}
	}
}

// tabulate describes the ranks that the request may go to in r.table. withOverloaded leaves those in that take no more for now.
func (r *Router) tabulate(snapshot *router.Snapshot, request *inference.Request, attempt *router.Attempt, how terms, p *prompt, now time.Duration, withOverloaded bool) error {
	if err := r.eligible(snapshot, request, attempt, how, withOverloaded); err != nil {
		return err
	}
	if p.exclusive > 0 {
		r.tracker.ProjectExclusive(&r.view, p.exclusive, now)
	} else {
		r.tracker.Project(&r.view, p.tracked, now)
	}
	r.fillTable(snapshot, request, how, p)
	return nil
}

// eligible lists the ranks to choose from in r.refs; a pinned request has one.
func (r *Router) eligible(snapshot *router.Snapshot, request *inference.Request, attempt *router.Attempt, how terms, withOverloaded bool) (err error) {
	conditions := router.Conditions{
		Allowed: request.Routing.AllowedWorkerIDs, Required: request.Routing.RequiredTaints,
		Tried: attempt.Tried, LastError: attempt.LastError, IgnoreOverload: withOverloaded,
	}
	if how.pinned {
		r.pin = how.pin // a pointer to how would put it on the heap
		if err := checkPin(snapshot, &conditions, &r.pin); err != nil {
			return err
		}
		conditions.Pin = &r.pin
	}
	plain := conditions.Allowed == nil && len(conditions.Required) == 0 && len(conditions.Tried) == 0 && conditions.Pin == nil && !withOverloaded
	if plain && r.plainVersion == snapshot.Version && snapshot.Version != 0 {
		return nil // most requests ask for nothing: the same ranks as last time
	}
	r.plainVersion = 0
	r.refs, err = snapshot.AppendEligible(r.refs[:0], &conditions)
	r.table.Rows = r.table.Rows[:0]
	if plain && err == nil {
		r.plainVersion = snapshot.Version
	}
	return err
}

// fillTable describes the ranks in r.refs to the policy.
func (r *Router) fillTable(snapshot *router.Snapshot, request *inference.Request, how terms, p *prompt) {
	t := &r.table
	t.Prompt = cost.Prompt{
		InputTokens: max(1, p.tokens), BlockSize: r.options.BlockSize, TrackPrefill: how.trackPrefill, DecodePool: !r.options.PrefillPool,
		Shared: p.shared,
	}
	t.Request, t.Weights, t.Override, t.Preferred = request, r.weights, request.RouterOverride, -1
	var preferred []router.WeightedTaint
	if len(request.Routing.PreferredTaints) > 0 && !how.pinned {
		preferred = router.AppendPreferred(nil, request.Routing.PreferredTaints)
	}
	if len(t.Rows) != len(r.refs) {
		r.newRows(snapshot)
	}
	for i, row := range r.loadRows {
		candidate := &t.Rows[i].Candidate
		*candidate = cost.Candidate{HasLoad: true, Load: cost.Load(r.view.At(row))}
		if preferred != nil {
			candidate.TaintMultiplier = cost.TaintMultiplier(t.Rows[i].Worker.TaintWeight(preferred))
		}
	}
	for i := range p.held.Ranks {
		held := &p.held.Ranks[i]
		if row := r.row(inference.Rank(held.Rank)); row != nil {
			row.Overlap = overlapOf(&held.Blocks)
		}
	}
	for i := range p.expected.Ranks {
		expected := &p.expected.Ranks[i]
		if row := r.row(inference.Rank(expected.Rank)); row != nil {
			row.Overlap.Device = max(row.Overlap.Device, expected.Blocks[kvindex.Device])
		}
	}
}

// overlapOf returns what a rank holds as costs see it: tiers beyond the disk count as disk.
func overlapOf(blocks *[kvindex.Tiers]uint32) cost.Overlap {
	return cost.Overlap{Device: blocks[kvindex.Device], Host: blocks[kvindex.HostPinned], Disk: blocks[kvindex.Disk] + blocks[kvindex.External]}
}

// newRows makes the rows of r.refs, without what changes from one request to the next.
func (r *Router) newRows(snapshot *router.Snapshot) {
	r.table.Rows, r.loadRows = r.table.Rows[:0], r.loadRows[:0]
	for i, ref := range r.refs {
		worker := &snapshot.Workers[ref.Worker]
		ordinal := r.fleet.ordinal(ref)
		r.rowOf[ordinal] = int32(i)
		r.loadRows = append(r.loadRows, r.fleet.rows[ordinal])
		r.table.Rows = append(r.table.Rows, selection.Row{Rank: inference.Rank{WorkerID: worker.ID, DPRank: ref.Rank}, Worker: worker})
	}
}

// row returns a rank's row, or nil when it is not eligible, has left or is not discovered yet.
func (r *Router) row(rank inference.Rank) *selection.Row {
	ordinal := r.fleet.find(rank)
	if ordinal < 0 {
		return nil
	}
	if at := int(r.rowOf[ordinal]); at < len(r.table.Rows) && r.table.Rows[at].Rank == rank {
		return &r.table.Rows[at]
	}
	return nil
}

// pick returns the winner's row and, when it did not win by the policy, how it did.
func (r *Router) pick(attempt *router.Attempt, how terms) (row int, reason string, err error) {
	t := &r.table
	t.Costs, t.Probabilities = t.Costs[:0], t.Probabilities[:0]
	if how.pinned {
		return 0, "pinned", nil
	}
	if prefer := attempt.Prefer; prefer != nil {
		for i := range t.Rows {
			if rank := t.Rows[i].Rank; rank.WorkerID == prefer.WorkerID && (!prefer.HasRank || rank.DPRank == prefer.Rank) {
				return i, "preferred", nil
			}
		}
	}
	row, err = r.options.Policy.Select(t)
	if err != nil {
		return 0, "", err
	}
	if err := t.Check(row); err != nil {
		return 0, "", inference.Errorf(inference.Unroutable, "%v", err)
	}
	return row, "", nil
}

// book takes the winner for the request. A question books nothing.
func (r *Router) book(lease *Lease, request *inference.Request, attempt *router.Attempt, how terms, p *prompt, row, cached int, now time.Duration) error {
	rank := r.table.Rows[row].Rank
	pin := router.Pin{WorkerID: rank.WorkerID, Rank: rank.DPRank, HasRank: true}
	if request.Routing.QueryOnly {
		lease.Init(pin, nil)
		return nil
	}
	booking := load.Booking{ID: request.ID, Rank: rank, Hashes: p.tracked, Exclusive: p.exclusive}
	if booking.ID == "" {
		booking.ID = "unnamed-" + strconv.FormatUint(r.anonymous.Add(1), 10)
	}
	if how.trackPrefill {
		booking.PrefillTokens = uint64(p.tokens - cached)
	}
	if r.options.Predictor != nil && booking.PrefillTokens > 0 {
		expected, err := r.options.Predictor.PredictPrefill(p.tokens, cached)
		booking.Expected, booking.Modelled = expected, err == nil
		if err != nil {
			r.unpredicted++
		}
	}
	handle, err := r.tracker.AddProjected(booking, &r.view, now)
	if err != nil {
		return inference.Errorf(inference.Unroutable, "failed to book scheduler state: %v", err)
	}
	lease.booking = booked{router: r, handle: handle, rank: rank, input: p.tokens, blocks: cost.Blocks(p.tokens, r.options.BlockSize), period: r.period.Load(),
		received: attempt.Received, prefill: attempt.Prefill}
	if expected := request.Routing.ExpectedOutputTokens; expected != nil {
		lease.booking.expected, lease.booking.hasExpected = int(*expected), true
	}
	if r.options.Replicas != nil {
		lease.booking.step = Step{RequestID: booking.ID, Rank: rank, LoRA: request.Routing.LoRAName}
		r.options.Replicas.Booked(Booked{Step: lease.booking.step, Hashes: booking.Hashes, Exclusive: booking.Exclusive, PrefillTokens: booking.PrefillTokens,
			Expected: booking.Expected, Modelled: booking.Modelled, ExpectedOutputTokens: request.Routing.ExpectedOutputTokens})
	}
	lease.Init(pin, &lease.booking)
	return nil
}
