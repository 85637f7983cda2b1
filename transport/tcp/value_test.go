package tcp

import (
	"context"
	"errors"
	"io"
	"testing"

	"signalbox/inference"
)

func TestPlainValuesInBothCodecs(t *testing.T) {
	client, server := pair(t, Options{})
	server.Handle("7/query", func(_ context.Context, call *Call) error {
		call.EmitValue(call.Body)
		return call.Flush()
	})
	for codec, body := range map[inference.Codec]string{
		inference.JSON:        `{"TreeDump":{"last_event_id":18446744073709551615}}`,
		inference.MessagePack: "\x81\xa8TreeDump\x81\xadlast_event_id\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
	} {
		stream, err := client.SendValue(t.Context(), target(server, "7/query", codec), "id", []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		output, err := stream.Next(t.Context())
		if err != nil || string(output.Body) != body {
			t.Errorf("%v: got %q, %v", codec, output.Body, err)
		}
		if _, err := stream.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("%v: after the last item: %v", codec, err)
		}
		stream.Close()
	}
}
