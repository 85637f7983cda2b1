package tcp

import (
	"net"
	"testing"
)

// TestWhoListensEverywhereAdvertisesAnAddress: 0.0.0.0 is where to listen, not where to call.
func TestWhoListensEverywhereAdvertisesAnAddress(t *testing.T) {
	for _, host := range []string{"0.0.0.0", "127.0.0.1"} {
		server, err := NewServer(Options{Host: host}, nil)
		if err != nil {
			t.Fatal(err)
		}
		client, err := NewClient(Options{Host: host})
		if err != nil {
			t.Fatal(err)
		}
		want := host
		if host == "0.0.0.0" {
			want = MachineAddress()
		}
		if server.Host() != want {
			t.Errorf("listening on %s: the server's host is %s, want %s", host, server.Host(), want)
		}
		for _, address := range []string{server.Address(), client.address} {
			got, _, err := net.SplitHostPort(address)
			if err != nil || got != want {
				t.Errorf("listening on %s: %s is advertised, want %s (%v)", host, address, want, err)
			}
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Errorf("listening on %s: %v", host, err)
				continue
			}
			_ = conn.Close()
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}
}
