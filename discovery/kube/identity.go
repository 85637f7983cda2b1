package kube

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Mode tells what counts as one process of the fleet, and by which readiness it is judged.
type Mode string

const (
	// PodMode takes each pod for one process, ready when an endpoint slice says so.
	PodMode Mode = "pod"
	// ContainerMode takes each container for one process, ready when the pod's status says so.
	ContainerMode Mode = "container"
)

// mainContainer is the container whose resource has the name of the pod alone.
const mainContainer = "main"

// podInfo is where the downward API volume is mounted.
const podInfo = "/etc/podinfo"

// Identity is this process's place in the cluster.
type Identity struct {
	Pod       string
	PodUID    string
	Namespace string
	Mode      Mode
	// Container is needed in container mode only.
	Container string
}

// IdentityFromEnvironment reads POD_NAME, POD_UID and POD_NAMESPACE, each of which a file in the downward API volume
// /etc/podinfo overrides, and DYN_KUBE_DISCOVERY_MODE and CONTAINER_NAME.
func IdentityFromEnvironment() (Identity, error) { return identityFrom(podInfo) }

func identityFrom(volume string) (Identity, error) {
	read := func(file, variable string) string {
		if content, err := os.ReadFile(filepath.Join(volume, file)); err == nil {
			if text := strings.TrimSpace(string(content)); text != "" {
				return text
			}
		}
		return os.Getenv(variable)
	}
	identity := Identity{
		Pod: read("pod_name", "POD_NAME"), PodUID: read("pod_uid", "POD_UID"), Namespace: read("pod_namespace", "POD_NAMESPACE"),
		Mode: Mode(os.Getenv("DYN_KUBE_DISCOVERY_MODE")), Container: os.Getenv("CONTAINER_NAME"),
	}
	return identity.complete()
}

// complete fills in defaults and checks the rest.
func (i Identity) complete() (Identity, error) {
	if i.Namespace == "" {
		i.Namespace = "default"
	}
	if i.Mode == "" {
		i.Mode = PodMode
	}
	switch {
	case i.Mode != PodMode && i.Mode != ContainerMode:
		return Identity{}, fmt.Errorf("kubernetes discovery: DYN_KUBE_DISCOVERY_MODE is %q; want pod or container", i.Mode)
	case i.Pod == "":
		return Identity{}, fmt.Errorf("kubernetes discovery: the pod's name is not known; set POD_NAME from metadata.name")
	case i.PodUID == "":
		return Identity{}, fmt.Errorf("kubernetes discovery: the pod's uid is not known; set POD_UID from metadata.uid")
	case i.Mode == ContainerMode && i.Container == "":
		return Identity{}, fmt.Errorf("kubernetes discovery: container mode needs the container's name; set CONTAINER_NAME")
	}
	return i, nil
}

// ResourceName is the name of the process's metadata resource.
func (i Identity) ResourceName() string {
	if i.Mode == ContainerMode {
		return containerResource(i.Pod, i.Container)
	}
	return i.Pod
}

func containerResource(pod, container string) string {
	if container == mainContainer {
		return pod
	}
	return pod + "-" + container
}

// InstanceID is the instance id of the process whose metadata resource has the given name: 53 bits, so that every JSON reader keeps it exact.
func InstanceID(resourceName string) uint64 {
	return sipHash13(append([]byte(resourceName), 0xff)) & (1<<53 - 1)
}
