package kvservice

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"signalbox/inference"
	"signalbox/router"
	"signalbox/router/kv"
	"signalbox/router/load"
)

// selectBody asks for a worker.
type selectBody struct {
	promptBody
	Model       *string       `json:"model_name"`
	Group       *string       `json:"routing_group"`
	SelectionID *string       `json:"selection_id"`
	Override    *overrideBody `json:"router_config_override"`
	Expected    *uint32       `json:"expected_output_tokens"`
	Jump        *float64      `json:"priority_jump"`
	Strict      *uint32       `json:"strict_priority"`
	Session     string        `json:"session_id"`
	Pinned      *struct {
		WorkerID uint64 `json:"worker_id"`
		Rank     uint32 `json:"dp_rank"`
	} `json:"pinned_worker"`
	Allowed     *[]uint64 `json:"allowed_worker_ids"`
	Constraints struct {
		Required  []string           `json:"required_taints"`
		Preferred map[string]float32 `json:"preferred_taints"`
	} `json:"routing_constraints"`
}

// selectAnswer is where a request should go.
type selectAnswer struct {
	SelectionID   *string `json:"selection_id,omitempty"`
	Hashes        []int64 `json:"sequence_hashes,omitzero"`
	Length        *int    `json:"isl_tokens,omitempty"`
	TracksPrefill *bool   `json:"track_prefill_tokens,omitempty"`
	reservedAnswerPlace
	BlockSize  int    `json:"block_size"`
	Overlap    held   `json:"overlap"`
	Prefill    int    `json:"effective_prefill_tokens"`
	DecodeLoad uint64 `json:"potential_decode_blocks"`
}

// reservedAnswerPlace names a rank and where its worker takes requests.
type reservedAnswerPlace struct {
	Model    string `json:"model_name"`
	Group    string `json:"routing_group"`
	WorkerID uint64 `json:"worker_id"`
	Rank     uint32 `json:"dp_rank"`
	Endpoint string `json:"endpoint"`
}

// asked is a request for a worker, ready to be placed.
type asked struct {
	pool     *selectPool
	given    kv.Given
	request  *inference.Request
	attempt  router.Attempt
	session  string
	tracks   bool
	override *inference.RouterOverride
}

func noFields() string { return "" }

// classHeader names the policy class of a request.
const classHeader = "X-Dynamo-Meta-Policy-Class"

// ask reads a request for a worker.
func (s *Selector) ask(r *http.Request, body *selectBody) (a asked, err error) {
	if err = read(r, body, noFields); err != nil {
		return a, err
	}
	if a.override, err = body.Override.override(); err != nil {
		return a, err
	}
	if a.pool, err = s.readyPool(poolOf(body.Model, body.Group)); err != nil {
		return a, err
	}
	if a.given, err = s.prompt(a.pool, &body.promptBody, s.reuse(a.override)); err != nil {
		return a, err
	}
	a.tracks, a.session = s.tracksPrefill(a.override), body.Session
	a.request = &inference.Request{Model: a.pool.name.model, RouterOverride: a.override, Routing: inference.Routing{
		ExpectedOutputTokens: body.Expected, LoRAName: body.Adapter, CacheSalt: body.Salt, PriorityJump: body.Jump, StrictPriority: body.Strict,
		RequiredTaints: body.Constraints.Required, PreferredTaints: body.Constraints.Preferred, PolicyClass: strings.TrimSpace(r.Header.Get(classHeader)),
	}}
	if body.Allowed != nil {
		a.request.Routing.AllowedWorkerIDs = append([]uint64{}, *body.Allowed...)
	}
	if body.Pinned != nil {
		// Whoever names a rank does not care where the session is.
		a.attempt.Pin = &router.Pin{WorkerID: body.Pinned.WorkerID, Rank: body.Pinned.Rank, HasRank: true}
		a.session = ""
		conditions := router.Conditions{Allowed: a.request.Routing.AllowedWorkerIDs, Required: body.Constraints.Required, Pin: a.attempt.Pin}
		if _, err := a.pool.pool.Snapshot().AppendEligible(nil, &conditions); err != nil {
			return a, placeFailure(err)
		}
	}
	return a, nil
}

// until returns a context that also ends with the service.
func (s *Selector) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	detach := context.AfterFunc(s.ctx, cancel)
	return ctx, func() {
		detach()
		cancel()
	}
}

// place chooses a rank for a question: the session's, when it is kept on one.
func (s *Selector) place(ctx context.Context, a *asked) (chosen kv.Selection, err error) {
	ctx, cancel := s.until(ctx)
	defer cancel()
	attempt := a.attempt
	if rank, kept := s.sessions.look(a.pool.name, a.session); kept && a.fits(rank) {
		attempt.Pin = pinTo(rank)
	}
	chosen, err = a.pool.router.Select(ctx, a.request, attempt, a.given)
	if attempt.Pin != nil && a.attempt.Pin == nil && speaksAgainst(err) {
		chosen, err = a.pool.router.Select(ctx, a.request, a.attempt, a.given)
	}
	return chosen, placeFailure(err)
}

// placeInSession chooses a rank for a reservation and claims its session, which others of the session wait for while it has no rank.
// The claim is the caller's to end, also after a failure.
func (s *Selector) placeInSession(ctx context.Context, a *asked) (chosen kv.Selection, hold *sessionHold, err error) {
	ctx, cancel := s.until(ctx)
	defer cancel()
	for again := false; ; again = true {
		if hold, err = s.sessions.acquire(ctx, a.pool.name, a.session, a.pool.owns); err != nil {
			return chosen, nil, s.waitFailure(err)
		}
		if hold == nil || hold.first {
			chosen, err = a.pool.router.Select(ctx, a.request, a.attempt, a.given)
			return chosen, hold, placeFailure(err)
		}
		if !a.fits(hold.rank) {
			// The request may not go where its session is. It is refused, and the session is free to begin elsewhere.
			question := *a.request
			question.Routing.QueryOnly = true
			if chosen, err = a.pool.router.Select(ctx, &question, a.attempt, a.given); err == nil {
				hold.leave()
				err = boundElsewhere(a.session, hold.rank, chosen.Rank)
			}
			return chosen, hold, placeFailure(err)
		}
		attempt := a.attempt
		attempt.Pin = pinTo(hold.rank)
		chosen, err = a.pool.router.Select(ctx, a.request, attempt, a.given)
		if !speaksAgainst(err) {
			return chosen, hold, placeFailure(err)
		}
		// The rank has left meanwhile: the session moves, once.
		hold.leave()
		if again {
			return chosen, hold, placeFailure(err)
		}
		hold.end()
	}
}

// fits tells whether the request may go to a rank, however busy that is.
func (a *asked) fits(rank inference.Rank) bool {
	conditions := router.Conditions{Allowed: a.request.Routing.AllowedWorkerIDs, Required: a.request.Routing.RequiredTaints, Pin: pinTo(rank), IgnoreOverload: true}
	_, err := a.pool.pool.Snapshot().AppendEligible(nil, &conditions)
	return err == nil
}

func pinTo(rank inference.Rank) *router.Pin {
	return &router.Pin{WorkerID: rank.WorkerID, Rank: rank.DPRank, HasRank: true}
}

// speaksAgainst tells whether a failure means that a rank cannot take the request at all.
func speaksAgainst(err error) bool {
	kind := inference.KindOf(err)
	return err != nil && (kind == inference.Unroutable || kind == inference.InvalidArgument)
}

// waitFailure is why the wait for a session has ended.
func (s *Selector) waitFailure(err error) error {
	if s.ctx.Err() != nil {
		err = router.Closed()
	}
	return placeFailure(err)
}

// boundElsewhere refuses a reservation whose session is at another rank.
func boundElsewhere(session string, bound, wanted inference.Rank) error {
	if bound.WorkerID == wanted.WorkerID {
		return badRequest("session %s is bound to DP rank %d of worker %d, not %d", session, bound.DPRank, bound.WorkerID, wanted.DPRank)
	}
	return badRequest("session %s is bound to worker %d, not %d", session, bound.WorkerID, wanted.WorkerID)
}

// placeFailure is how clients see that no rank was chosen.
func placeFailure(err error) error {
	var limit *router.QueueLimitError
	var known *inference.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &limit):
		return &failure{status: http.StatusTooManyRequests, text: limit.Error(), details: limit.ProblemDetails()}
	case !errors.As(err, &known):
		return err
	}
	status := http.StatusServiceUnavailable
	switch {
	case known.Kind == inference.ResourceExhausted:
		status = http.StatusTooManyRequests
	case known.Kind == inference.Unroutable && strings.HasPrefix(known.Message, "pinned worker"):
		status = http.StatusBadRequest
	case known.Kind == inference.Unroutable && strings.HasPrefix(known.Message, "failed to book"):
		status = http.StatusConflict
	case known.Kind == inference.Unroutable && known.Message != router.NoEndpoints().Message && !strings.Contains(known.Message, "policy filters"):
		status = http.StatusInternalServerError
	}
	return &failure{status: status, text: known.Message}
}

// answerFor describes a choice.
func (s *Selector) answerFor(a *asked, chosen *kv.Selection) (answer selectAnswer, err error) {
	endpoint, known := s.endpoint(chosen.Rank.WorkerID, a.pool.name)
	if !known {
		return answer, &failure{status: http.StatusInternalServerError, text: fmt.Sprintf("selected worker %d is no longer schedulable", chosen.Rank.WorkerID)}
	}
	tokens := func(blocks uint32) uint64 { return uint64(blocks) * uint64(a.pool.blockSize) }
	device := tokens(chosen.Overlap.Device)
	host := device + tokens(chosen.Overlap.Host)
	disk := host + tokens(chosen.Overlap.Disk)
	return selectAnswer{
		reservedAnswerPlace: reservedAnswerPlace{a.pool.name.model, a.pool.name.group, chosen.Rank.WorkerID, chosen.Rank.DPRank, endpoint},
		BlockSize:           a.pool.blockSize,
		Overlap: held{Longest: disk, Device: device, Host: host, Disk: disk,
			Ranks: map[string]uint64{strconv.FormatUint(uint64(chosen.Rank.DPRank), 10): device}},
		Prefill: a.given.Tokens - min(chosen.CachedTokens, a.given.Tokens), DecodeLoad: chosen.PotentialDecodeBlocks,
	}, nil
}

func (s *Selector) selectOnly(w http.ResponseWriter, r *http.Request) {
	var body selectBody
	a, err := s.ask(r, &body)
	if err != nil {
		reply(w, 0, nil, err)
		return
	}
	a.request.Routing.QueryOnly = true
	chosen, err := s.place(r.Context(), &a)
	var said selectAnswer
	if err == nil {
		said, err = s.answerFor(&a, &chosen)
	}
	if err == nil && body.SelectionID != nil {
		said.SelectionID = body.SelectionID
		pending := &pendingSelection{pool: a.pool.name, id: *body.SelectionID, rank: chosen.Rank, hashes: a.given.Tracked, expected: body.Expected,
			adapter: body.Adapter, session: a.session, made: s.clock.Now()}
		if a.tracks {
			pending.prefillTokens = uint64(said.Prefill)
		}
		s.pending.add(pending)
	}
	reply(w, http.StatusOK, said, err)
}

func (s *Selector) selectAndReserve(w http.ResponseWriter, r *http.Request) {
	var body selectBody
	a, err := s.ask(r, &body)
	if err != nil {
		reply(w, 0, nil, err)
		return
	}
	id := newID()
	if body.SelectionID != nil {
		id = *body.SelectionID
	}
	if err := s.claim(id, a.pool); err != nil {
		reply(w, 0, nil, err)
		return
	}
	a.request.ID = id
	chosen, hold, err := s.placeInSession(r.Context(), &a)
	if err == nil {
		hold.bind(chosen.Rank)
	}
	s.settle(id, err == nil, hold)
	var said selectAnswer
	if err == nil {
		if said, err = s.answerFor(&a, &chosen); err != nil {
			s.step(id, (*kv.Router).Free, true)
		}
	}
	said.SelectionID, said.Length, said.TracksPrefill, said.Hashes = &id, &a.given.Tokens, &a.tracks, signed(a.given.Tracked)
	reply(w, http.StatusOK, said, err)
}

func signed(hashes []uint64) []int64 {
	list := make([]int64, len(hashes))
	for i, hash := range hashes {
		list[i] = int64(hash)
	}
	return list
}

// newID returns a random UUID.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// claim takes an id for a reservation that is being made.
func (s *Selector) claim(id string, p *selectPool) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.booked[id] != nil {
		return &failure{status: http.StatusConflict, text: "selection " + id + " is already reserved or being reserved"}
	}
	s.booked[id] = &reservation{pool: p, making: true}
	return nil
}

// settle ends the making of a reservation, which has its session's claim from now on. One whose rank has left meanwhile is gone with it.
func (s *Selector) settle(id string, made bool, hold *sessionHold) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	r := s.booked[id]
	r.session = hold
	if !made || !r.pool.router.Holds(id) {
		s.forgetLocked(id)
		return
	}
	r.making, r.at = false, s.clock.Now()
}

// reserveBody asks for a reservation: of an earlier selection, or on a worker that is named.
type reserveBody struct {
	promptBody
	Model         *string       `json:"model_name"`
	Group         *string       `json:"routing_group"`
	SelectionID   *string       `json:"selection_id"`
	WorkerID      *uint64       `json:"worker_id"`
	Rank          uint32        `json:"dp_rank"`
	Override      *overrideBody `json:"router_config_override"`
	Expected      *uint32       `json:"expected_output_tokens"`
	Prefill       *int          `json:"effective_prefill_tokens"`
	TracksPrefill *bool         `json:"track_prefill_tokens"`
}

type reservedAnswer struct {
	SelectionID string `json:"selection_id"`
	reservedAnswerPlace
}

func (s *Selector) reserve(w http.ResponseWriter, r *http.Request) {
	var body reserveBody
	var said reservedAnswer
	err := read(r, &body, func() string { return firstMissing(member{"selection_id", body.SelectionID != nil}) })
	switch {
	case err != nil:
	case body.WorkerID != nil:
		said, err = s.reserveNamed(&body)
	default:
		said, err = s.reservePending(r.Context(), &body)
	}
	reply(w, http.StatusCreated, said, err)
}

// reservePending books what an earlier selection chose, as it was then. Its session may have been bound elsewhere meanwhile.
func (s *Selector) reservePending(ctx context.Context, body *reserveBody) (said reservedAnswer, err error) {
	name, id := poolOf(body.Model, body.Group), *body.SelectionID
	pending := s.pending.get(name, id, s.clock.Now())
	if pending == nil {
		return said, &failure{status: http.StatusNotFound, text: fmt.Sprintf("no pending selection %s for %s (expired, already used, or never selected)", id, name)}
	}
	p, err := s.readyPool(name)
	if err != nil {
		return said, err
	}
	endpoint, known := s.endpoint(pending.rank.WorkerID, name)
	if !known || !p.owns(pending.rank) {
		return said, &failure{status: http.StatusNotFound,
			text: fmt.Sprintf("schedulable worker %d (dp_rank %d) not found for %s", pending.rank.WorkerID, pending.rank.DPRank, name)}
	}
	booked := kv.Booked{Step: kv.Step{RequestID: id, Rank: pending.rank, LoRA: pending.adapter}, Hashes: pending.hashes,
		PrefillTokens: pending.prefillTokens, ExpectedOutputTokens: pending.expected}
	if err := s.claim(id, p); err != nil {
		return said, err
	}
	ctx, cancel := s.until(ctx)
	defer cancel()
	hold, err := s.sessions.acquire(ctx, name, pending.session, p.owns)
	if err != nil {
		s.settle(id, false, nil)
		return said, s.waitFailure(err)
	}
	if hold != nil && !hold.first && hold.rank != pending.rank {
		hold.leave()
		s.pending.remove(name, id, pending)
		s.settle(id, false, hold)
		return said, boundElsewhere(pending.session, hold.rank, pending.rank)
	}
	if err := s.bookClaimed(p, booked, hold); err != nil {
		return said, err
	}
	s.pending.remove(name, id, pending)
	return reservedAnswer{id, reservedAnswerPlace{name.model, name.group, pending.rank.WorkerID, pending.rank.DPRank, endpoint}}, nil
}

// reserveNamed books a prompt on the rank that the request names.
func (s *Selector) reserveNamed(body *reserveBody) (said reservedAnswer, err error) {
	name, id := poolOf(body.Model, body.Group), *body.SelectionID
	s.pending.remove(name, id, nil)
	override, err := body.Override.override()
	if err != nil {
		return said, err
	}
	p, err := s.readyPool(name)
	if err != nil {
		return said, err
	}
	var given kv.Given
	if _, _, told := body.tokens(); told {
		given, err = s.prompt(p, &body.promptBody, s.reuse(override))
	} else {
		given, err = body.hashes(false)
	}
	if err != nil {
		return said, err
	}
	if body.Prefill != nil && (*body.Prefill < 0 || *body.Prefill > given.Tokens) {
		return said, badRequest("effective_prefill_tokens (%d) must not exceed isl_tokens (%d)", *body.Prefill, given.Tokens)
	}
	rank := inference.Rank{WorkerID: *body.WorkerID, DPRank: body.Rank}
	endpoint, known := s.endpoint(rank.WorkerID, name)
	if !known {
		return said, &failure{status: http.StatusNotFound, text: fmt.Sprintf("schedulable worker %d not found for %s", rank.WorkerID, name)}
	}
	booked := kv.Booked{Step: kv.Step{RequestID: id, Rank: rank, LoRA: body.Adapter}, Hashes: given.Tracked, ExpectedOutputTokens: body.Expected}
	if body.Prefill != nil && (body.TracksPrefill == nil || *body.TracksPrefill) {
		booked.PrefillTokens = uint64(*body.Prefill)
	}
	if err := s.book(p, booked); err != nil {
		return said, err
	}
	return reservedAnswer{id, reservedAnswerPlace{name.model, name.group, rank.WorkerID, rank.DPRank, endpoint}}, nil
}

// book makes a reservation.
func (s *Selector) book(p *selectPool, booked kv.Booked) error {
	if err := s.claim(booked.RequestID, p); err != nil {
		return err
	}
	return s.bookClaimed(p, booked, nil)
}

// bookClaimed makes a reservation whose id is claimed, and binds its session.
func (s *Selector) bookClaimed(p *selectPool, booked kv.Booked, hold *sessionHold) error {
	err := p.router.Reserve(booked)
	if err == nil {
		hold.bind(booked.Rank)
	}
	s.settle(booked.RequestID, err == nil, hold)
	var exists *load.ExistsError
	switch {
	case errors.Is(err, kv.ErrNoRank):
		return &failure{status: http.StatusNotFound, text: fmt.Sprintf("Worker WorkerWithDpRank { worker_id: %d, dp_rank: %d } not found", booked.Rank.WorkerID, booked.Rank.DPRank)}
	case errors.As(err, &exists):
		return &failure{status: http.StatusConflict, text: exists.Error()}
	}
	return err
}

// step takes a reservation one step on; ends tells that it is over then. False means that there is none.
func (s *Selector) step(id string, do func(r *kv.Router, id string) bool, ends bool) bool {
	s.mutex.Lock()
	r := s.booked[id]
	if r == nil || r.making {
		s.mutex.Unlock()
		return false
	}
	if ends {
		s.forgetLocked(id)
	}
	s.mutex.Unlock()
	return do(r.pool.router, id)
}

// stepReply answers a report about the reservation that a path names.
func (s *Selector) stepReply(w http.ResponseWriter, name string, do func(r *kv.Router, id string) bool, ends bool) {
	id, err := url.PathUnescape(name)
	if err != nil || !s.step(id, do, ends) {
		reply(w, 0, nil, &failure{status: http.StatusNotFound, text: "reservation " + id + " not found"})
		return
	}
	answer(w, http.StatusOK, done{"ok"})
}

func (s *Selector) prefillComplete(w http.ResponseWriter, _ *http.Request, name string) {
	s.stepReply(w, name, (*kv.Router).Prefilled, false)
}

func (s *Selector) freeReservation(w http.ResponseWriter, _ *http.Request, name string) {
	s.stepReply(w, name, (*kv.Router).Free, true)
}

func (s *Selector) outputBlock(w http.ResponseWriter, r *http.Request, name string) {
	var body struct {
		Fraction *float64 `json:"decay_fraction"`
	}
	err := read(r, &body, noFields)
	fraction := -1.0
	if err == nil && body.Fraction != nil {
		if fraction = *body.Fraction; !(fraction >= 0 && fraction <= 1) {
			err = badRequest("decay_fraction must be between 0.0 and 1.0")
		}
	}
	if err != nil {
		reply(w, 0, nil, err)
		return
	}
	s.stepReply(w, name, func(router *kv.Router, id string) bool { return router.OutputBlock(id, fraction) }, false)
}
