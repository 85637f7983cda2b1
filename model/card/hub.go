package card

import (
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Hub is the Hugging Face hub and its local cache.
type Hub struct {
	// Cache is the folder with one models--organisation--name folder per repository.
	Cache string
	// Endpoint is the hub's address.
	Endpoint string
	// Token is sent with requests; "" sends none.
	Token string
	// Offline forbids requests: only the cache is used.
	Offline bool
}

const defaultHubEndpoint = "https://huggingface.co"

// HubFromEnvironment reads HF_HUB_CACHE, HF_HOME, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE the way Hugging Face's own library does.
func HubFromEnvironment() Hub {
	hub := Hub{Cache: os.Getenv("HF_HUB_CACHE"), Endpoint: os.Getenv("HF_ENDPOINT"), Token: os.Getenv("HF_TOKEN")}
	home := os.Getenv("HF_HOME")
	if home == "" {
		if user, err := os.UserHomeDir(); err == nil {
			home = filepath.Join(user, ".cache", "huggingface")
		}
	}
	if hub.Cache == "" {
		hub.Cache = filepath.Join(home, "hub")
	}
	if hub.Token == "" {
		if token, err := os.ReadFile(filepath.Join(home, "token")); err == nil {
			hub.Token = strings.TrimSpace(string(token))
		}
	}
	if hub.Endpoint == "" {
		hub.Endpoint = defaultHubEndpoint
	}
	switch strings.ToLower(os.Getenv("HF_HUB_OFFLINE")) {
	case "1", "true", "yes", "on":
		hub.Offline = true
	}
	return hub
}

// checkRepository refuses what can't be a repository, a local path for one.
func checkRepository(repository string) error {
	parts := strings.Split(repository, "/")
	for _, part := range parts {
		if part == "" || part == "." || part == ".." || len(parts) > 2 {
			return fmt.Errorf("%q is not a repository of the hub; want organisation/name", repository)
		}
	}
	return nil
}

// cached returns the path of a file in the local copy of a repository, "" when it is not there. The commit that the main branch
// stood at comes first, then any other.
func (h Hub) cached(repository, name string) string {
	if checkRepository(repository) != nil || !filepath.IsLocal(name) {
		return ""
	}
	folder := filepath.Join(h.Cache, "models--"+strings.ReplaceAll(repository, "/", "--"))
	if commit, err := os.ReadFile(filepath.Join(folder, "refs", "main")); err == nil {
		found := filepath.Join(folder, "snapshots", filepath.Base(strings.TrimSpace(string(commit))), name)
		if isFile(found) {
			return found
		}
	}
	snapshots, err := os.ReadDir(filepath.Join(folder, "snapshots"))
	if err != nil {
		return ""
	}
	for _, snapshot := range snapshots {
		if found := filepath.Join(folder, "snapshots", snapshot.Name(), name); isFile(found) {
			return found
		}
	}
	return ""
}

// Directory returns the folder of a repository's local copy in which there is such a file; "" when there is none.
func (h Hub) Directory(repository, name string) string {
	if found := h.cached(repository, name); found != "" {
		return filepath.Dir(found)
	}
	return ""
}

func (h Hub) address(repository, name string) string {
	endpoint := h.Endpoint
	if endpoint == "" {
		endpoint = defaultHubEndpoint
	}
	location := url.URL{Path: path.Join(repository, "resolve", "main", name)}
	return strings.TrimSuffix(endpoint, "/") + "/" + location.EscapedPath()
}
