package interop

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// clients is the folder of the programs of the clients' environment.
func clients(t *testing.T) string {
	t.Helper()
	directory := os.Getenv("SIGNALBOX_CLIENTS")
	if directory == "" {
		t.Skip("no client programs: set SIGNALBOX_CLIENTS, or run make test")
	}
	return directory
}

// TestTritonClient uses the gRPC service as Triton's users do: a text model of ours and a tensor model on the real runtime.
func TestTritonClient(t *testing.T) {
	python, peer, s := filepath.Join(clients(t), "python"), releases(t)[0], fileStore(t)
	start(t, s.environment(), program, append([]string{"worker", "--model-name", "interop", "--speedup-ratio", "100"}, s.flags()...)...)
	environment := append(s.environment(), "DYN_DISCOVERY_BACKEND=file", "DYN_REQUEST_PLANE=tcp", "DYN_EVENT_PLANE=zmq")
	start(t, environment, peer.python, filepath.Join("clients", "echo_worker.py"), "echo")
	metrics := freePort(t)
	ours := startOurs(t, s, "--kserve-grpc-server", "--grpc-metrics-port", strconv.Itoa(metrics))
	address := strings.TrimPrefix(ours.url, "http://")
	ours.url = fmt.Sprintf("http://127.0.0.1:%d", metrics)
	waitForModels(t, ours, "interop", "echo")
	output, err := exec.Command(python, filepath.Join("clients", "triton.py"), address, "interop", "echo").CombinedOutput()
	if err != nil || !strings.HasSuffix(string(output), "ok\n") {
		t.Errorf("%v:\n%s", err, output)
	}
	if status, text, err := ours.post("/v1/completions", "{}"); err != nil || status != http.StatusNotFound || text != "" {
		t.Errorf("inference over HTTP beside gRPC: %d %q %v, want an empty 404", status, text, err)
	}
	response, err := http.Get(ours.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text := readAll(t, response.Body)
	for _, series := range []string{`requests_total{endpoint="completions",error_type="",model="interop",request_type="stream",status="success"}`,
		`requests_total{endpoint="tensor",error_type="",model="echo",request_type="unary",status="success"}`} {
		if !strings.Contains(text, series) {
			t.Errorf("/metrics lacks %s", series)
		}
	}
}
