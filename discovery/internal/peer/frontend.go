package peer

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"signalbox/discovery"
	"signalbox/discovery/internal/contract"
	"signalbox/model/card"
)

// CheckFrontendSeesOurs starts a real frontend on a discovery backend and publishes a worker with ours: the frontend lists its model,
// and lists it no more once the worker has left.
func CheckFrontendSeesOurs(t *testing.T, newStore func(t *testing.T) (Store, discovery.Backend)) {
	eachRelease(t, func(t *testing.T, r release) {
		store, backend := newStore(t)
		checkFrontendSeesOurs(t, r, store, backend)
	})
}

func checkFrontendSeesOurs(t *testing.T, r release, store Store, backend discovery.Backend) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	r.start(t, "dynamo.frontend", append(store.planes(), "--http-host", "127.0.0.1", "--http-port", fmt.Sprint(port)), store.Environment)

	made, err := card.FromDirectory(ModelDirectory(t), "ours", card.Options{BlockSize: 16})
	if err != nil {
		t.Fatal(err)
	}
	written, err := made.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	instance := contract.Instance("dynamo", backend.InstanceID())
	model := contract.Model("dynamo", backend.InstanceID(), string(written))
	contract.Publish(t, backend, instance)
	contract.Publish(t, backend, model)
	address := fmt.Sprintf("http://127.0.0.1:%d/v1/models", port)
	waitForModels(t, address, "ours")
	if err := discovery.Withdraw(t.Context(), backend, model); err != nil {
		t.Fatal(err)
	}
	waitForModels(t, address)
}

// waitForModels waits until a frontend lists exactly these models.
func waitForModels(t *testing.T, address string, want ...string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	var last string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-pause.C {
		names, err := listModels(client, address)
		if err == nil && fmt.Sprint(names) == fmt.Sprint(want) {
			return
		}
		last = fmt.Sprint(names, " ", err)
	}
	t.Fatalf("the frontend lists %s; want %v", last, want)
}

func listModels(client *http.Client, address string) (names []string, err error) {
	response, err := client.Get(address)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return nil, err
	}
	for _, model := range list.Data {
		names = append(names, model.ID)
	}
	return names, nil
}
