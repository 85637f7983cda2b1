package observe

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"signalbox/router"
)

// DecisionRecord is a decision as it is kept and shown.
type DecisionRecord struct {
	Time      time.Time       `json:"time"`
	RequestID string          `json:"request_id"`
	Model     string          `json:"model"`
	Decision  router.Decision `json:"decision"`
}

// Decisions keeps the newest decisions: as many as it was made for, the oldest go first.
type Decisions struct {
	mu   sync.Mutex
	ring []DecisionRecord
	next int
	full bool
}

// NewDecisions returns room for size decisions; at least one.
func NewDecisions(size int) *Decisions { return &Decisions{ring: make([]DecisionRecord, max(size, 1))} }

// Add keeps a decision.
func (d *Decisions) Add(record DecisionRecord) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ring[d.next] = record
	if d.next++; d.next == len(d.ring) {
		d.next, d.full = 0, true
	}
}

// Of returns the decisions about a request, or about all for "", in the order in which they were made.
func (d *Decisions) Of(requestID string) []DecisionRecord {
	d.mu.Lock()
	defer d.mu.Unlock()
	ordered := d.ring[:d.next]
	if d.full {
		ordered = append(append([]DecisionRecord{}, d.ring[d.next:]...), d.ring[:d.next]...)
	}
	list := []DecisionRecord{}
	for _, record := range ordered {
		if requestID == "" || record.RequestID == requestID {
			list = append(list, record)
		}
	}
	return list
}

// maxDecisionLine bounds a line of a log, in bytes: a thousand candidates take some 400 KB.
const maxDecisionLine = 16 << 20

// ReadDecisions calls yield with every decision in a log, in either of the formats that the frontend writes, or in a file of
// records one per line. Other lines are passed over. It stops when yield returns false.
func ReadDecisions(log io.Reader, yield func(DecisionRecord) bool) error {
	lines := bufio.NewScanner(log)
	lines.Buffer(make([]byte, 0, 64<<10), maxDecisionLine)
	for number := 1; lines.Scan(); number++ {
		record, found, err := parseDecisionLine(lines.Text())
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		if found && !yield(record) {
			return nil
		}
	}
	return lines.Err()
}

func parseDecisionLine(line string) (record DecisionRecord, found bool, err error) {
	line = strings.TrimSpace(line)
	if strings.HasPrefix(line, "{") {
		return parseDecisionObject(line)
	}
	if !strings.Contains(line, " msg=decision ") {
		return record, false, nil
	}
	fields := logFields(line)
	if err := json.Unmarshal([]byte(fields["decision"]), &record.Decision); err != nil {
		return record, false, fmt.Errorf("the decision in the log line: %w", err)
	}
	record.Time, _ = time.Parse(time.RFC3339, fields["time"]) // a log without times is as good
	record.RequestID, record.Model = fields["request_id"], fields["model"]
	return record, true, nil
}

// parseDecisionObject reads a record, a JSON log line with the decision as a text, or a bare decision.
func parseDecisionObject(line string) (record DecisionRecord, found bool, err error) {
	var object struct {
		Time       time.Time
		RequestID  string `json:"request_id"`
		Model      string
		Decision   json.RawMessage
		Candidates json.RawMessage
	}
	if json.Unmarshal([]byte(line), &object) != nil {
		return record, false, nil // JSON of something else
	}
	text := object.Decision
	if text == nil {
		if object.Candidates == nil {
			return record, false, nil
		}
		text = json.RawMessage(line)
	}
	var quoted string
	if json.Unmarshal(text, &quoted) == nil {
		text = json.RawMessage(quoted)
	}
	if err := json.Unmarshal(text, &record.Decision); err != nil {
		return record, false, fmt.Errorf("the decision in it: %w", err)
	}
	record.Time, record.RequestID, record.Model = object.Time, object.RequestID, object.Model
	return record, true, nil
}

// logFields splits a line of key=value, where values may be quoted.
func logFields(line string) map[string]string {
	fields := make(map[string]string)
	for line != "" {
		key, rest, ok := strings.Cut(strings.TrimLeft(line, " "), "=")
		if !ok {
			break
		}
		if strings.HasPrefix(rest, `"`) {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				break
			}
			fields[key], _ = strconv.Unquote(quoted)
			line = rest[len(quoted):]
			continue
		}
		fields[key], line, _ = strings.Cut(rest, " ")
	}
	return fields
}

// WriteDecision explains a decision in words and a table.
func WriteDecision(w io.Writer, record *DecisionRecord) error {
	d := &record.Decision
	var b strings.Builder
	if record.RequestID != "" {
		fmt.Fprintf(&b, "request %s", record.RequestID)
		if record.Model != "" {
			fmt.Fprintf(&b, ", model %s", record.Model)
		}
		b.WriteString(": ")
	}
	if d.Winner >= 0 && d.Winner < len(d.Candidates) {
		fmt.Fprintf(&b, "worker %d rank %d — %s", d.Candidates[d.Winner].WorkerID, d.Candidates[d.Winner].Rank, d.Reason)
	} else {
		fmt.Fprintf(&b, "nobody — %s", d.Reason)
	}
	fmt.Fprintf(&b, "\nmode %s", d.Mode)
	if d.Phase != "" {
		fmt.Fprintf(&b, ", %s leg", d.Phase)
	}
	if d.Policy != "" {
		fmt.Fprintf(&b, ", policy %s", d.Policy)
	}
	fmt.Fprintf(&b, ", prompt of %d tokens", d.InputTokens)
	if d.RequestBlocks > 0 {
		fmt.Fprintf(&b, " in %d blocks", d.RequestBlocks)
	}
	if d.Temperature > 0 {
		fmt.Fprintf(&b, ", temperature %g", d.Temperature)
	}
	if d.QueuedSeconds > 0 {
		fmt.Fprintf(&b, ", waited %.3f s in class %s", d.QueuedSeconds, d.PolicyClass)
	}
	b.WriteString("\n\n")
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	if d.RequestBlocks > 0 {
		writeBlockTable(table, d)
	} else {
		writeLoadTable(table, d)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, out := range d.Excluded {
		fmt.Fprintf(&b, "not considered: worker %d, %s\n", out.WorkerID, out.Reason)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func mark(d *router.Decision, i int) string {
	if i == d.Winner {
		return "→"
	}
	return ""
}

func writeLoadTable(w io.Writer, d *router.Decision) {
	fmt.Fprintln(w, "\tworker\trank\trequests in flight\t")
	for i := range d.Candidates {
		c := &d.Candidates[i]
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t\n", mark(d, i), c.WorkerID, c.Rank, c.Load)
	}
}

// writeBlockTable shows everything in blocks but the tokens that wait for prefill. The cost is
// (prefill + decode + requests) × taints, where prefill has the credit taken off already.
func writeBlockTable(w io.Writer, d *router.Decision) {
	fmt.Fprintln(w, "\tworker\trank\tdevice\thost\tdisk\tshared\twaiting tokens\tblocks in use\tnew\trequests\t│ prefill\t(credit)\tdecode\trequests\ttaints ×\tcost\todds\t")
	for i := range d.Candidates {
		c := &d.Candidates[i]
		odds := ""
		if c.Probability > 0 {
			odds = strconv.FormatFloat(c.Probability, 'f', 3, 64)
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%g\t%g\t%g\t%g\t%d\t%d\t%d\t%d\t│ %.4g\t(%.4g)\t%.4g\t%.4g\t%.3g\t%.6g\t%s\t\n", mark(d, i), c.WorkerID, c.Rank,
			c.DeviceBlocks, c.HostBlocks, c.DiskBlocks, c.SharedBlocks, c.ActivePrefillTokens, c.ActiveDecodeBlocks, c.AdditionalActiveBlocks, c.ActiveRequests,
			c.PrefillCost, c.Credit, c.DecodeCost, c.RequestCost, c.TaintMultiplier, c.Cost, odds)
	}
}
