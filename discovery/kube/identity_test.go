package kube

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A wrong hash gives this process another identity than its own records have.
func TestInstanceID(t *testing.T) {
	for name, want := range map[string]uint64{
		"worker-0":          1186445869714687,
		"worker-0-engine-0": 8051026481054291,
	} {
		if got := InstanceID(name); got != want {
			t.Errorf("InstanceID(%q) = %d, want %d", name, got, want)
		}
	}
}

func TestResourceName(t *testing.T) {
	for _, test := range []struct {
		identity Identity
		want     string
	}{
		{Identity{Pod: "worker-0", Mode: PodMode, Container: "engine-0"}, "worker-0"},
		{Identity{Pod: "worker-0", Mode: ContainerMode, Container: "main"}, "worker-0"},
		{Identity{Pod: "worker-0", Mode: ContainerMode, Container: "engine-0"}, "worker-0-engine-0"},
	} {
		if got := test.identity.ResourceName(); got != test.want {
			t.Errorf("%+v has the resource %q, want %q", test.identity, got, test.want)
		}
	}
}

func TestIdentityFromEnvironment(t *testing.T) {
	set := func(values map[string]string) {
		for _, name := range []string{"POD_NAME", "POD_UID", "POD_NAMESPACE", "DYN_KUBE_DISCOVERY_MODE", "CONTAINER_NAME"} {
			t.Setenv(name, values[name])
		}
	}
	volume := t.TempDir()
	set(map[string]string{"POD_NAME": "a", "POD_UID": "1"})
	got, err := identityFrom(volume)
	if want := (Identity{Pod: "a", PodUID: "1", Namespace: "default", Mode: PodMode}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for file, content := range map[string]string{"pod_name": "b\n", "pod_uid": "2", "pod_namespace": ""} {
		if err := os.WriteFile(filepath.Join(volume, file), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	set(map[string]string{"POD_NAME": "a", "POD_UID": "1", "POD_NAMESPACE": "ns", "DYN_KUBE_DISCOVERY_MODE": "container", "CONTAINER_NAME": "engine-0"})
	got, err = identityFrom(volume)
	if want := (Identity{Pod: "b", PodUID: "2", Namespace: "ns", Mode: ContainerMode, Container: "engine-0"}); err != nil || got != want {
		t.Errorf("got %+v, %v; want the volume's non-empty files to win: %+v", got, err, want)
	}
	for name, test := range map[string]struct {
		values    map[string]string
		complaint string
	}{
		"no pod":       {map[string]string{"POD_UID": "1"}, "POD_NAME"},
		"no uid":       {map[string]string{"POD_NAME": "a"}, "POD_UID"},
		"no container": {map[string]string{"POD_NAME": "a", "POD_UID": "1", "DYN_KUBE_DISCOVERY_MODE": "container"}, "CONTAINER_NAME"},
		"mode":         {map[string]string{"POD_NAME": "a", "POD_UID": "1", "DYN_KUBE_DISCOVERY_MODE": "node"}, `DYN_KUBE_DISCOVERY_MODE is "node"; want pod or container`},
	} {
		set(test.values)
		if _, err := identityFrom(t.TempDir()); err == nil || !strings.Contains(err.Error(), test.complaint) {
			t.Errorf("%s: got %v, want an error with %q", name, err, test.complaint)
		}
	}
}
