package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"signalbox/observe"
)

const explainUsage = `usage: signalbox explain [--request ID] LOGFILE
         the decisions in the log of a frontend ("-" for standard input)
       signalbox explain --url URL [--request ID]
         the newest decisions of a running frontend
       signalbox explain --url URL --body FILE
         where the running frontend would send this request now ("-" for standard input); nothing is sent to a worker

The frontend records decisions with SIGNALBOX_EXPLAIN=1, and logs them with DYN_LOG=debug.
`

// runExplain shows why requests went where they did.
func runExplain(args []string) error {
	flags := flag.NewFlagSet("explain", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	address := flags.String("url", "", "")
	request := flags.String("request", "", "")
	body := flags.String("body", "", "")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Print(explainUsage)
		return nil
	}
	if err != nil || *address == "" && flags.NArg() != 1 || *address != "" && flags.NArg() > 0 || *body != "" && (*address == "" || *request != "") {
		fmt.Fprint(os.Stderr, explainUsage)
		return exitStatus(2)
	}
	if *address == "" {
		return explainLog(flags.Arg(0), *request)
	}
	if parsed, err := url.Parse(*address); err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return fmt.Errorf("explain: --url: %q must be the address of a frontend, like http://127.0.0.1:8000", *address)
	}
	client := explainClient{base: strings.TrimSuffix(*address, "/")}
	if *body != "" {
		if *request, err = client.query(*body); err != nil {
			return err
		}
	}
	return client.show(*request)
}

func explainLog(path, requestID string) error {
	file, err := openOrStdin(path)
	if err != nil {
		return err
	}
	defer file.Close()
	found := false
	var failed error
	err = observe.ReadDecisions(file, func(record observe.DecisionRecord) bool {
		if requestID == "" || record.RequestID == requestID {
			failed = showDecision(&record, found)
			found = true
		}
		return failed == nil
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	if !found {
		return errors.New("no decision found: the frontend logs them with SIGNALBOX_EXPLAIN=1 and DYN_LOG=debug")
	}
	return nil
}

func showDecision(record *observe.DecisionRecord, another bool) error {
	if another {
		fmt.Println()
	}
	return observe.WriteDecision(os.Stdout, record)
}

func openOrStdin(path string) (io.ReadCloser, error) {
	if path == "-" {
		return io.NopCloser(os.Stdin), nil
	}
	return os.Open(path)
}

// explainClient asks a running frontend.
type explainClient struct{ base string }

var explainHTTP = &http.Client{Timeout: 30 * time.Second}

// show prints the decisions about a request, or the newest ones.
func (c explainClient) show(requestID string) error {
	address := c.base + "/signalbox/decisions"
	if requestID != "" {
		address += "/" + requestID
	}
	response, err := explainHTTP.Get(address)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct{ Decisions []observe.DecisionRecord }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK && response.StatusCode != http.StatusNotFound {
		return fmt.Errorf("%s: status %d: the frontend records decisions only with SIGNALBOX_EXPLAIN=1", address, response.StatusCode)
	}
	if len(answer.Decisions) == 0 {
		return fmt.Errorf("%s knows no decision about request %q", c.base, requestID)
	}
	for i := range answer.Decisions {
		if err := showDecision(&answer.Decisions[i], i > 0); err != nil {
			return err
		}
	}
	return nil
}

// query asks where a request would go and returns the request's id.
func (c explainClient) query(path string) (requestID string, err error) {
	file, err := openOrStdin(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		return "", err
	}
	body, route, err := queryBody(text)
	if err != nil {
		return "", err
	}
	response, err := explainHTTP.Post(c.base+route, "application/json", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	var id struct{ ID string }
	if err := json.Unmarshal(answer, &id); err != nil || response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s%s: status %d: %s", c.base, route, response.StatusCode, answer)
	}
	_, requestID, _ = strings.Cut(id.ID, "-")
	return requestID, nil
}

// queryBody turns a request into a question: the answer to it names a worker and generates nothing.
func queryBody(text []byte) (body []byte, route string, err error) {
	var request map[string]json.RawMessage
	if err := json.Unmarshal(text, &request); err != nil {
		return nil, "", fmt.Errorf("request body: %w", err)
	}
	extension := map[string]json.RawMessage{}
	if given, ok := request["nvext"]; ok {
		if err := json.Unmarshal(given, &extension); err != nil {
			return nil, "", fmt.Errorf("nvext of the request body: %w", err)
		}
	}
	extension["annotations"] = json.RawMessage(`["query_instance_id:"]`)
	if request["nvext"], err = json.Marshal(extension); err != nil {
		return nil, "", err
	}
	delete(request, "stream")
	delete(request, "stream_options")
	route = "/v1/completions"
	if _, chat := request["messages"]; chat {
		route = "/v1/chat/completions"
	}
	body, err = json.Marshal(request)
	return body, route, err
}
