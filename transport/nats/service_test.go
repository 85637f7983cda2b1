package nats

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
)

// questions asks for services; each answers once.
func questions(t *testing.T, nc *client.Conn, subject string, answers int) []map[string]any {
	t.Helper()
	inbox := nc.NewInbox()
	subscription, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = subscription.Unsubscribe() }()
	if err := nc.PublishRequest(subject, inbox, nil); err != nil {
		t.Fatal(err)
	}
	list := make([]map[string]any, answers)
	for i := range list {
		message, err := subscription.NextMsg(30 * time.Second)
		if err != nil {
			t.Fatalf("%s: answer %d of %d: %v", subject, i+1, answers, err)
		}
		if err := json.Unmarshal(message.Data, &list[i]); err != nil {
			t.Fatalf("%s: %v: %s", subject, err, message.Data)
		}
	}
	return list
}

// TestWhatIsServedIsListed: NATS's own tools see a worker's subjects as the endpoints of one service, and what was asked of them.
func TestWhatIsServedIsListed(t *testing.T) {
	s := start(t, &server.Options{})
	tools, err := client.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tools.Close)
	c := connect(t, s, func(o *Options) { o.Version = "1.2.3" })
	var stops []func()
	for _, subject := range []string{"ns_backend.generate-7", "ns_backend.load_lora-7", "ns_prefill.generate-7"} {
		stop, err := c.Serve(subject, "described", func([]byte) {})
		if err != nil {
			t.Fatal(err)
		}
		stops = append(stops, stop)
	}
	names := map[string]bool{}
	for _, answer := range questions(t, tools, "$SRV.PING", 2) {
		if answer["type"] != "io.nats.micro.v1.ping_response" || answer["version"] != "1.2.3" {
			t.Errorf("ping: %v", answer)
		}
		names[answer["name"].(string)] = true
	}
	if !names["ns_backend"] || !names["ns_prefill"] {
		t.Errorf("services: %v", names)
	}
	info := questions(t, tools, "$SRV.INFO.ns_backend", 1)[0]
	endpoints := info["endpoints"].([]any)
	first := endpoints[0].(map[string]any)
	if info["type"] != "io.nats.micro.v1.info_response" || info["description"] != "described" || len(endpoints) != 2 ||
		first["name"] != "ns_backend-generate-7" || first["subject"] != "ns_backend.generate-7" || first["queue_group"] != "q" {
		t.Errorf("info: %v", info)
	}
	if err := connect(t, s).Deliver(t.Context(), "ns_backend.generate-7", nil, []byte("x")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the request is counted", func() bool {
		stats := questions(t, tools, "$SRV.STATS.ns_backend."+info["id"].(string), 1)[0]
		one := stats["endpoints"].([]any)[0].(map[string]any)
		return stats["type"] == "io.nats.micro.v1.stats_response" && one["num_requests"] == 1.0 && one["average_processing_time"] == one["processing_time"]
	})
	stops[1]()
	if info := questions(t, tools, "$SRV.INFO.ns_backend", 1)[0]; len(info["endpoints"].([]any)) != 1 {
		t.Errorf("after one was withdrawn: %v", info)
	}
	stops[0]()
	if err := c.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := tools.Request("$SRV.PING.ns_backend", nil, 30*time.Second); !errors.Is(err, client.ErrNoResponders) {
		t.Errorf("a service without endpoints still answers: %v", err)
	}
	stops[2]()
}
