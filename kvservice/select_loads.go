package kvservice

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"

	"signalbox/inference"
	"signalbox/kvindex"
	"signalbox/router"
	"signalbox/router/kv"
)

// rows returns what every rank of the pool would be busy with if it took the prompt.
func (p *selectPool) rows(given kv.Given, tracks bool) []potentialLoad {
	rows := []potentialLoad{}
	for _, at := range p.router.AppendProspects(nil, given) {
		row := potentialLoad{at.Rank.WorkerID, at.Rank.DPRank, at.ActivePrefillTokens, at.ActiveDecodeBlocks + at.AdditionalActiveBlocks, at.ActiveRequests}
		if tracks {
			row.Prefill += uint64(given.Tokens - at.CachedTokens)
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b potentialLoad) int {
		return cmp.Or(cmp.Compare(a.WorkerID, b.WorkerID), cmp.Compare(a.Rank, b.Rank))
	})
	return rows
}

func (s *Selector) loads(w http.ResponseWriter, r *http.Request) {
	type row struct {
		Model   string          `json:"model_name"`
		Group   string          `json:"routing_group"`
		Loads   []potentialLoad `json:"loads"`
		Waiting uint64          `json:"pending_count"`
		Tokens  uint64          `json:"pending_isl_tokens"`
	}
	rows := []row{}
	query := r.URL.Query()
	for _, p := range s.allPools(query.Get("model_name"), query.Get("routing_group")) {
		at := row{Model: p.name.model, Group: p.name.group, Loads: p.rows(kv.Given{}, false)}
		for _, class := range p.router.AppendClasses(nil) {
			at.Waiting += uint64(class.Requests)
			at.Tokens += class.RawTokens
		}
		rows = append(rows, at)
	}
	answer(w, http.StatusOK, rows)
}

// aboutBody asks about a prompt without asking for a worker.
type aboutBody struct {
	promptBody
	Model    *string       `json:"model_name"`
	Group    *string       `json:"routing_group"`
	Override *overrideBody `json:"router_config_override"`
}

// about reads a question about a prompt.
func (s *Selector) about(r *http.Request) (p *selectPool, given kv.Given, override *inference.RouterOverride, err error) {
	var body aboutBody
	if err = read(r, &body, noFields); err != nil {
		return nil, given, nil, err
	}
	if override, err = body.Override.override(); err != nil {
		return nil, given, nil, err
	}
	if p, err = s.readyPool(poolOf(body.Model, body.Group)); err != nil {
		return nil, given, nil, err
	}
	given, err = s.prompt(p, &body.promptBody, s.reuse(override))
	return p, given, override, err
}

func (s *Selector) potentialLoads(w http.ResponseWriter, r *http.Request) {
	p, given, override, err := s.about(r)
	if err != nil {
		reply(w, 0, nil, err)
		return
	}
	answer(w, http.StatusOK, p.rows(given, s.tracksPrefill(override)))
}

// overlapRow is what one rank holds of a prompt, in blocks: each tier with those above it, and what it holds beyond them.
type overlapRow struct {
	WorkerID  uint64  `json:"worker_id"`
	Rank      uint32  `json:"dp_rank"`
	Device    uint32  `json:"device_blocks"`
	Host      uint32  `json:"host_pinned_blocks"`
	Disk      uint32  `json:"disk_blocks"`
	HostExtra uint32  `json:"host_pinned_extension_blocks"`
	DiskExtra uint32  `json:"disk_extension_blocks"`
	Shared    *uint32 `json:"shared_beyond_device_blocks"`
}

// overlapAnswer is what all ranks hold of a prompt. A shared cache is not asked.
type overlapAnswer struct {
	BlockSize int          `json:"block_size"`
	Blocks    int          `json:"num_blocks"`
	Workers   []overlapRow `json:"workers"`
	Shared    struct {
		Enabled bool        `json:"enabled"`
		Total   uint32      `json:"total_hit_blocks"`
		Ranges  [][2]uint32 `json:"ranges"`
		Error   *string     `json:"error"`
	} `json:"shared_cache"`
}

func (s *Selector) overlapScores(w http.ResponseWriter, r *http.Request) {
	p, given, _, err := s.about(r)
	if err != nil {
		reply(w, 0, nil, err)
		return
	}
	matches := p.find(given.Locals)
	answer(w, http.StatusOK, overlapsOf(p.blockSize, len(given.Locals), p.pool.Snapshot(), &matches))
}

// AppendOverlaps appends, as JSON, what every rank of the snapshot holds of a prompt of so many complete blocks.
func AppendOverlaps(dst []byte, blockSize, blocks int, snapshot *router.Snapshot, matches *kvindex.Matches) ([]byte, error) {
	text, err := json.Marshal(overlapsOf(blockSize, blocks, snapshot, matches))
	return append(dst, text...), err
}

func overlapsOf(blockSize, blocks int, snapshot *router.Snapshot, matches *kvindex.Matches) overlapAnswer {
	said := overlapAnswer{BlockSize: blockSize, Blocks: blocks, Workers: []overlapRow{}}
	said.Shared.Ranges = [][2]uint32{}
	holds := make(map[kvindex.Rank][kvindex.Tiers]uint32, len(matches.Ranks))
	for i := range matches.Ranks {
		holds[matches.Ranks[i].Rank] = matches.Ranks[i].Blocks
	}
	for i := range snapshot.Workers {
		worker := &snapshot.Workers[i]
		start, end, _ := worker.Ranks()
		for rank := start; rank < end; rank++ {
			held := holds[kvindex.Rank{WorkerID: worker.ID, DPRank: rank}]
			row := overlapRow{WorkerID: worker.ID, Rank: rank, Device: held[kvindex.Device], HostExtra: held[kvindex.HostPinned],
				DiskExtra: held[kvindex.Disk] + held[kvindex.External]}
			row.Host = row.Device + row.HostExtra
			row.Disk = row.Host + row.DiskExtra
			said.Workers = append(said.Workers, row)
		}
	}
	return said
}
