package card

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"lukechampine.com/blake3"
)

const (
	connectTimeout = 10 * time.Second
	fetchTimeout   = 300 * time.Second
	// maxFileBytes limits files whose size the card does not tell.
	maxFileBytes = 1 << 30
)

// ErrChecksum is wrapped by errors about a file whose content is not what the card promises.
var ErrChecksum = errors.New("checksum differs")

// Files are a model's files on this machine, each verified against the card. "" is a file that the card does not have.
type Files struct {
	Config           string
	Tokenizer        string
	PromptFormatter  string
	ChatTemplate     string
	GenerationConfig string
	// Extra has the card's further files by their base names.
	Extra map[string]string
}

// Resolver finds and fetches the files that cards name. It may be used by several goroutines.
type Resolver struct {
	// ModelPath is a local model directory that stands in for files which are not where the card says.
	ModelPath string
	// CacheDir is where fetched files are kept, by content; "" means DefaultCacheDir.
	CacheDir string
	// Hub is where hf:// files come from; the zero value means HubFromEnvironment.
	Hub Hub
	// Client fetches URLs; nil means a client that gives up connecting after 10 seconds.
	Client *http.Client
}

// DefaultCacheDir is ~/.cache/dynamo/mdc, shared with the real frontend, for both keep files by content.
func DefaultCacheDir() (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("model file cache: %w", err)
	}
	return filepath.Join(home, ".cache", "dynamo", "mdc"), nil
}

// Resolve makes all files of a card available. It tries each once; whoever calls it decides about retries.
func (r *Resolver) Resolve(ctx context.Context, card *Card) (*Files, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	files := &Files{Extra: make(map[string]string)}
	for _, slot := range []struct {
		member   string
		artifact *Artifact
		target   *string
	}{
		{"model_info", card.ModelInfo, &files.Config},
		{"tokenizer", card.Tokenizer, &files.Tokenizer},
		{"prompt_formatter", card.PromptFormatter, &files.PromptFormatter},
		{"chat_template_file", card.ChatTemplateFile, &files.ChatTemplate},
		{"gen_config", card.GenerationConfig, &files.GenerationConfig},
	} {
		if slot.artifact == nil {
			continue
		}
		found, err := r.ResolveFile(ctx, card, slot.artifact.File, slot.artifact.Custom)
		if err != nil {
			return nil, fmt.Errorf("model %q: %s: %w", card.DisplayName, slot.member, err)
		}
		*slot.target = found
	}
	for _, extra := range card.ExtraFiles {
		found, err := r.ResolveFile(ctx, card, extra, false)
		if err != nil {
			return nil, fmt.Errorf("model %q: extra_files: %w", card.DisplayName, err)
		}
		files.Extra[extra.BaseName()] = found
	}
	return files, nil
}

// ResolveFile returns a local path with the file's content. Local files are used in place: at the path that the card names,
// else by base name below ModelPath, else from the hub's repository that the card names. custom files (a chat template that the
// operator chose) can't come from the hub, whose file of that name is another.
func (r *Resolver) ResolveFile(ctx context.Context, card *Card, file File, custom bool) (string, error) {
	location, err := url.Parse(file.Path)
	scheme := ""
	if err == nil {
		scheme = location.Scheme
	}
	switch scheme {
	case "http", "https":
		return r.fetch(ctx, file, file.Path, "")
	case "hf":
		repository, name, err := splitHubPath(file.Path)
		if err != nil {
			return "", err
		}
		return r.fromHub(ctx, file, repository, name)
	case "file", "":
		return r.local(ctx, card, file, location, custom)
	}
	return "", fmt.Errorf("file %q: scheme %q is not known; want a path, file, http, https or hf", file.Path, scheme)
}

func (r *Resolver) local(ctx context.Context, card *Card, file File, location *url.URL, custom bool) (string, error) {
	named := file.Path
	if location != nil && location.Scheme == "file" {
		named = location.Path
	}
	if isFile(named) {
		return verified(named, file)
	}
	if replacement := r.inModelPath(file); replacement != "" {
		return verified(replacement, file)
	}
	if custom {
		return "", fmt.Errorf("custom chat template %q is not on this machine; share the disk or pass --model-path", named)
	}
	found, err := r.fromHub(ctx, file, card.Source(), file.BaseName())
	if err != nil {
		return "", fmt.Errorf("%q is not on this machine, and neither is a replacement (--model-path): %w", named, err)
	}
	return found, nil
}

// inModelPath returns the file of the same name below ModelPath, "" when there is none.
func (r *Resolver) inModelPath(file File) string {
	if r.ModelPath == "" {
		return ""
	}
	if replacement := filepath.Join(r.ModelPath, file.BaseName()); isFile(replacement) {
		return replacement
	}
	return ""
}

// fromHub takes a file from the local copy of a hub repository, else from ModelPath, else from the hub.
func (r *Resolver) fromHub(ctx context.Context, file File, repository, name string) (string, error) {
	hub := r.Hub
	if hub == (Hub{}) {
		hub = HubFromEnvironment()
	}
	if cached := hub.cached(repository, name); cached != "" {
		return verified(cached, file)
	}
	if replacement := r.inModelPath(file); replacement != "" {
		return verified(replacement, file)
	}
	if err := checkRepository(repository); err != nil {
		return "", err
	}
	if hub.Offline {
		return "", fmt.Errorf("hf://%s/%s is not in the cache %s, and HF_HUB_OFFLINE forbids to fetch it", repository, name, hub.Cache)
	}
	return r.fetch(ctx, file, hub.address(repository, name), hub.Token)
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// verified returns name if its content is what the card promises.
func verified(name string, file File) (string, error) {
	digest, err := digestOf(name)
	if err != nil {
		return "", err
	}
	if digest != file.Digest() {
		return "", mismatch(name, file, digest)
	}
	return name, nil
}

func mismatch(where string, file File, digest string) error {
	return fmt.Errorf("%w: %q has the content blake3:%s, the card wants %s; the worker and this machine have different versions of the model",
		ErrChecksum, where, digest, file.Checksum)
}

func digestOf(name string) (string, error) {
	handle, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer handle.Close()
	hash := blake3.New(32, nil)
	if _, err := io.Copy(hash, handle); err != nil {
		return "", fmt.Errorf("read %q: %w", name, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// fetch downloads a file into the cache, unless its content is there already.
func (r *Resolver) fetch(ctx context.Context, file File, address, token string) (string, error) {
	cache := r.CacheDir
	if cache == "" {
		var err error
		if cache, err = DefaultCacheDir(); err != nil {
			return "", err
		}
	}
	blobs := filepath.Join(cache, "blobs")
	blob := filepath.Join(blobs, file.Digest())
	if digest, err := digestOf(blob); err == nil {
		if digest == file.Digest() {
			return blob, nil
		}
		os.Remove(blob) // damaged; fetch it again
	}
	if err := os.MkdirAll(blobs, 0o777); err != nil {
		return "", fmt.Errorf("model file cache: %w", err)
	}
	body, err := r.get(ctx, address, token)
	if err != nil {
		return "", err
	}
	defer body.Close()
	if err := store(blob, body, file, address); err != nil {
		return "", err
	}
	return blob, nil
}

func (r *Resolver) get(ctx context.Context, address, token string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("fetch %q: %w", address, err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := r.Client
	if client == nil {
		client = fetchClient
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("fetch %q: %w", address, err)
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("fetch %q: the server answered %s", address, response.Status)
	}
	return response.Body, nil
}

// fetchClient keeps no idle connections: files are fetched once in a while.
var fetchClient = &http.Client{Transport: &http.Transport{
	Proxy:                 http.ProxyFromEnvironment,
	DialContext:           (&net.Dialer{Timeout: connectTimeout}).DialContext,
	TLSHandshakeTimeout:   connectTimeout,
	ResponseHeaderTimeout: fetchTimeout,
	DisableKeepAlives:     true,
	ForceAttemptHTTP2:     true,
}}

// store writes body beside blob, checks it, and moves it there in one step, so that a blob is always whole.
func store(blob string, body io.Reader, file File, address string) (err error) {
	limit := uint64(maxFileBytes)
	if file.Size != nil {
		limit = min(limit, *file.Size)
	}
	temporary, err := os.CreateTemp(filepath.Dir(blob), ".fetch-*")
	if err != nil {
		return fmt.Errorf("model file cache: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(temporary.Name())
		}
	}()
	hash := blake3.New(32, nil)
	written, err := io.Copy(io.MultiWriter(temporary, hash), io.LimitReader(body, int64(limit)+1))
	if closeErr := temporary.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("fetch %q: %w", address, err)
	}
	if uint64(written) > limit {
		return fmt.Errorf("fetch %q: more than the %d bytes that are allowed for it", address, limit)
	}
	if digest := hex.EncodeToString(hash.Sum(nil)); digest != file.Digest() {
		return mismatch(address, file, digest)
	}
	if err := os.Rename(temporary.Name(), blob); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("model file cache: %w", err)
	}
	return nil
}

// splitHubPath takes hf://organisation/name/file or hf://name/file apart.
func splitHubPath(location string) (repository, name string, err error) {
	rest := strings.TrimPrefix(location, "hf://")
	parts := strings.Split(rest, "/")
	cut := min(2, len(parts)-1)
	if cut < 1 {
		return "", "", fmt.Errorf("file %q: want hf://organisation/name/file", location)
	}
	repository, name = strings.Join(parts[:cut], "/"), path.Join(parts[cut:]...)
	if err := checkRepository(repository); err != nil {
		return "", "", fmt.Errorf("file %q: %w", location, err)
	}
	if !filepath.IsLocal(name) {
		return "", "", fmt.Errorf("file %q: %q leads out of the repository", location, name)
	}
	return repository, name, nil
}
